"""Which texts a network asks its sources for, so that simulated rows can have them.

where: "city = 'Oslo'", selectivity: 0.2      ─►      city of the source: 20 % 'Oslo'
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from streamshed.network.expressions.expression import COMPARISONS, Binary, Expression, Field, Literal
from streamshed.network.graph import Aggregate, CountWindow, Filter, Map, Network

Origins = Mapping[str, frozenset[tuple[str, str]]]
"""For each column, the (source, column) that it is handed on from."""


def texts(network: Network) -> dict[str, dict[str, dict[str, float | None]]]:
    """For each source, for each column of text, what it is compared with, and the share of the rows that has it.

    The share is known where a filter asks for nothing but texts of one column, with `=` or IN: then it is the
    filter's selectivity, in equal parts. The first such filter counts. So does a source's `protect` with its
    share. A selectivity of 1 is what a filter has that says none, and tells nothing.

    >>> from streamshed.network import Builder
    >>> network = (
    ...     Builder("n").source("s", "city STRING, x DOUBLE")
    ...     .filter("far", "s", "city IN ('Oslo', 'Rome')", selectivity=0.2)
    ...     .filter("near", "s", "city != 'Paris' AND x > 5").output("o", "far").output("p", "near").build()
    ... )
    >>> texts(network)
    {'s': {'city': {'Oslo': 0.1, 'Rome': 0.1, 'Paris': None}}}
    """
    found: dict[str, dict[str, dict[str, float | None]]] = {source.name: {} for source in network.sources}

    def note(expression: Expression, above: Origins, share: float) -> None:
        asked = _alternatives(expression)
        for field, text in _compared(expression):
            for source, column in above.get(field, ()):
                known = found[source].setdefault(column, {})
                if known.get(text) is None:
                    known[text] = share / len(asked) if asked and 0 <= share < 1 else None

    origins: dict[str, Origins] = {}
    for source in network.sources:
        columns = [column.name for column in source.schema if column.type == "STRING"]
        origins[source.name] = {name: frozenset({(source.name, name)}) for name in columns}
        if source.protect is not None:
            note(source.protect, origins[source.name], source.protected or 1.0)
    for box in network.order:
        above: dict[str, frozenset[tuple[str, str]]] = {}
        for name in box.inputs:
            for column, places in origins[name].items():
                above[column] = above.get(column, frozenset()) | places
        origins[box.name] = above
        if isinstance(box, Filter):
            note(box.where, above, box.selectivity)
        elif isinstance(box, Map):
            for expression in box.select.values():
                note(expression, above, 1.0)
            origins[box.name] = {
                column: above[expression.name]
                for column, expression in box.select.items()
                if isinstance(expression, Field) and expression.name in above
            }
        elif isinstance(box, Aggregate | CountWindow):
            for expression in box.compute.values():
                note(expression, above, 1.0)
            origins[box.name] = {column: above[column] for column in box.by if column in above}
    return found


def _compared(expression: Expression) -> Iterator[tuple[str, str]]:
    """The fields that are compared with a text, with the text."""
    if isinstance(expression, Binary) and expression.op in COMPARISONS:
        for one, other in ((expression.left, expression.right), (expression.right, expression.left)):
            if isinstance(one, Field) and isinstance(other, Literal) and isinstance(other.value, str):
                yield one.name, other.value
    for child in expression.children():
        yield from _compared(child)


def _alternatives(expression: Expression) -> set[tuple[str, str]]:
    """The texts one of which a field must equal, if that is all that the expression says; else nothing."""
    if isinstance(expression, Binary) and expression.op == "OR":
        left, right = _alternatives(expression.left), _alternatives(expression.right)
        both = left | right
        return both if left and right and len({field for field, _ in both}) == 1 else set()
    if isinstance(expression, Binary) and expression.op == "=":
        return set(_compared(expression))
    return set()


def share_rest(known: Mapping[str, float | None]) -> dict[str, float]:
    """The share of each text, where those without one share the rest evenly with all other texts as one more.

    >>> share_rest({"Oslo": 0.25, "Rome": None, "Paris": None})
    {'Oslo': 0.25, 'Rome': 0.25, 'Paris': 0.25}
    >>> share_rest({"Oslo": 0.8, "Rome": 0.8})
    {'Oslo': 0.5, 'Rome': 0.5}
    """
    said = sum(share for share in known.values() if share is not None)
    scale = 1.0 / said if said > 1.0 else 1.0
    rest = max(0.0, 1.0 - said) / (1 + sum(share is None for share in known.values()))
    return {text: rest if share is None else share * scale for text, share in known.items()}
