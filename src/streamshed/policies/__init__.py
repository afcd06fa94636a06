"""Where to drop, and how much: one policy a file."""
