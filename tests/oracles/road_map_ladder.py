"""The road map on the age ladder in plain Python: which rows of a source come to which outputs."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from streamshed.network.expressions.expression import parse
from streamshed.network.graph import Filter, Map, Network, Union, arc, inputs
from streamshed.policies.contract import Row

Values = dict[str, npt.NDArray[np.float64]]
Mask = npt.NDArray[np.bool_]
Way = tuple[Mask, npt.NDArray[np.float64], Values]
"""Which rows are there, what is their share, and their fields."""


def delivered(
    network: Network, source: str, values: Values, draws: npt.NDArray[np.float64], row: Row | None
) -> tuple[dict[str, list[Way]], dict[str, tuple[int, int]]]:
    """By output, the rows that come to it on each way; by arc, how many came and passed.

    draws: of each row, between 0 and 1; row: of the road map, which is in force for all of them
    """
    count = len(draws)
    ways: dict[str, list[Way]] = {source: [(np.ones(count, bool), np.ones(count), values)]}
    counts: dict[str, tuple[int, int]] = {}
    for head in (*network.order, *network.outputs):
        for tail in inputs(head):
            on = arc(tail, head.name)
            for there, share, fields in ways.get(tail, []):
                for drop in row.drops if row is not None else ():
                    if drop.at == on:
                        taken = np.ones(count, bool)
                        if drop.where is not None:
                            taken = np.asarray(parse(drop.where).evaluate(fields), bool)
                        share = share * np.where(taken, drop.keep, 1.0)
                passes = there & (draws < share)
                before = counts.get(on, (0, 0))
                counts[on] = (before[0] + int(there.sum()), before[1] + int(passes.sum()))
                if isinstance(head, Filter):
                    passes = passes & np.asarray(head.where.evaluate(fields), bool)
                made = fields
                if isinstance(head, Map):
                    made = {
                        name: np.broadcast_to(np.asarray(value.evaluate(fields)), (count,))
                        for name, value in head.select.items()
                    }
                elif isinstance(head, Union):
                    names = [column.name for column in network.schemas[head.name]]
                    made = dict(zip(names, fields.values(), strict=True))
                ways.setdefault(head.name, []).append((passes, share, made))
    return {output.name: ways.get(output.name, []) for output in network.outputs}, counts
