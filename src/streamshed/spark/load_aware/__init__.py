"""`load_aware`: one expensive function, kept at its queuing latency."""
