"""Where to drop, and how much: one policy a file."""

from streamshed.policies.none import NoShedding
from streamshed.policies.random import RandomShedding

__all__ = ["NoShedding", "RandomShedding"]
