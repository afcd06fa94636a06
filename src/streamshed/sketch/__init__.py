"""Summaries of a stream in constant memory: Count-Min, its hashes, and the cost of rows learned with it."""
