"""What shedding cost: the report, and the ledger that adds it up."""

from streamshed.quality.ledger import Ledger
from streamshed.quality.report import Report

__all__ = ["Ledger", "Report"]
