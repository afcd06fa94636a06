"""What Spark's queries did: its reports and row counts, made into samples."""
