"""Load shedding for Apache Spark Structured Streaming."""
