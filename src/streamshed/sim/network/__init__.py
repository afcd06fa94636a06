"""A network in virtual time: rows, boxes, queues, and the event loop."""
