"""By which field rows can be dropped on an arc: the one that most of the outputs below tell rows apart by."""

from __future__ import annotations

from collections import Counter

from streamshed.network.graph import Filter, Network
from streamshed.network.value_flow.cells import below
from streamshed.network.value_flow.trace import ways


def drop_fields(network: Network) -> dict[str, str]:
    """For arcs on which rows can be told apart, the field to do it by.

    Value graphs come first. Where no output below has one, it is what filters below test: rows that none of them
    lets pass can go without loss.

    >>> from streamshed.network import Builder
    >>> network = (
    ...     Builder("n").source("s", "v DOUBLE, w DOUBLE").filter("f", "s", "w > 3").output("o", "f").build()
    ... )
    >>> drop_fields(network)
    {'s->f': 'w'}
    """
    by_value: dict[str, Counter[str]] = {}
    for output in network.outputs:
        if output.qos.value is not None:
            for on, several in ways(network, output.name, output.qos.value.field).items():
                for way in several:
                    by_value.setdefault(on, Counter())[way.field] += 1
    by_filter: dict[str, Counter[str]] = {}
    for box in network.order:
        for field in box.where.fields() if isinstance(box, Filter) else ():
            if not network.column(box.inputs[0], field).numeric:
                continue
            for on, several in ways(network, box.name, field).items():
                for way in several:
                    by_filter.setdefault(on, Counter())[way.field] += len(below(network, on)[1])
    votes = {**by_filter, **by_value}
    return {on: min(votes[on], key=lambda field: (-votes[on][field], field)) for on in network.arcs if on in votes}
