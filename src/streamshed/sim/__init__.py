"""Virtual time: a network of boxes on one node, with queues, service in turns, and drops."""
