"""`run`: a network of queries on Spark."""
