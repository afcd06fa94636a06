"""Where to drop, and how much: one policy a file."""

from streamshed.policies.no_shedding import NoShedding
from streamshed.policies.uniform import RandomShedding

__all__ = ["NoShedding", "RandomShedding"]
