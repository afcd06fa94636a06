"""Moved to `orders`."""

from streamshed.spark.orders.drop_order import HASH, KEEP, KEY, SALT, THRESHOLD, ControlFile, unit_hash
from streamshed.spark.orders.history import KEPT_PLANS, History, Span
from streamshed.spark.orders.order_file import HistoryFile
from streamshed.spark.orders.store import Store, control_store

__all__ = [
    "HASH",
    "KEEP",
    "KEPT_PLANS",
    "KEY",
    "SALT",
    "THRESHOLD",
    "ControlFile",
    "History",
    "HistoryFile",
    "Span",
    "Store",
    "control_store",
    "unit_hash",
]
