"""Columns as Spark takes them."""

from __future__ import annotations


def quoted(name: str) -> str:
    """A column's name as Spark takes it whole, with dots and all."""
    return "`" + name.replace("`", "``") + "`"


def hashable(kind: str) -> bool:
    """Whether Spark can hash values of a type."""
    return not any(part in kind for part in ("map<", "variant", "interval"))
