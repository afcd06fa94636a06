"""What shedding cost: the ledger."""

from streamshed.quality.ledger import Ledger

__all__ = ["Ledger"]
