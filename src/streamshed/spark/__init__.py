"""The Spark runtime: plans carried out inside running streaming queries."""
