"""What a drop takes, apart from sparing protected rows: that part is every drop's, and says nothing of its own."""

from __future__ import annotations

from collections.abc import Iterable

from streamshed.network.expressions.expression import Binary, Expression, Unary
from streamshed.network.graph import Network


def protecting(network: Network) -> list[Expression]:
    """What tells protected rows, of all sources."""
    return [source.protect for source in network.sources if source.protect is not None]


def without_protection(predicate: Expression, protects: Iterable[Expression]) -> Expression | None:
    """What a drop takes apart from sparing protected rows; None: all."""
    for protect in protects:
        spared = Unary("NOT", protect)
        if predicate == spared:
            return None
        if isinstance(predicate, Binary) and predicate.op == "AND" and predicate.right == spared:
            return predicate.left
    return predicate
