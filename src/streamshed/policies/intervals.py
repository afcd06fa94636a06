"""Interval propagation: a range of values at an output becomes a predicate further up (Aurora).

Carney et al., Monitoring Streams, VLDB 2002, semantic load shedding. Three ways to carry it upstream:

`backward`   through the inverse of every box, as far as there are inverses
`forward`    where there are none: propose a predicate upstream, push a sample of rows down, see what is
             missing at the output, and bisect
`combined`   backward as far as it goes, then forward from the place of the drop to the box that stopped it

A map of one field needs no sample: whole ranges are pushed through it (`network.expressions.images`). Backward
and that together is how `lsrm-semantic` follows values. A sample is for the rest: udfs, aggregates, maps of
several fields.

A drop belongs as far up as it hits no other output: at the source, or right below the split point.

>>> from streamshed.network import Builder
>>> network = (
...     Builder("n").source("s", "bpm DOUBLE").filter("a", "s", "bpm > 40")
...     .map("m", "a", {"f": "bpm * 2 + 1"}).output("o", "m").build()
... )
>>> for found in backward(network, "o", "f", Ranges.between(101, 121)):
...     print(found.arc, "|", found.where)
s->a | bpm >= 50 AND bpm < 60
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamshed.errors import InvalidArgument
from streamshed.network.expressions.expression import Call
from streamshed.network.expressions.ranges import Ranges, above
from streamshed.network.graph import Aggregate, Box, Filter, Join, Map, Network, Output, Udf, arc, ends
from streamshed.network.value_flow.cells import below
from streamshed.network.value_flow.trace import trace

Rows = Mapping[str, npt.NDArray[np.float64]]
"""A sample: columns of equal length."""
Functions = Mapping[str, Callable[..., npt.NDArray[np.float64]]]
"""For each udf box, its function on columns."""


@dataclass(frozen=True)
class Propagated:
    """A predicate for the rows to drop on an arc."""

    arc: str
    field: str
    ranges: Ranges
    where: str
    how: str
    """`backward` or `forward`."""
    covered: float = 1.0
    """Share of the unwanted output rows that the predicate removes."""
    missed: float = 0.0
    """Share of the wanted output rows that it removes too."""


def places(network: Network, output: str) -> list[str]:
    """Where drops for one output belong: on each way up, the last arc that leads to this output only."""
    found: list[str] = []
    node = network.nodes[output]
    if not isinstance(node, Output):
        raise InvalidArgument("no such output", got=repr(output), hint=", ".join(o.name for o in network.outputs))
    stack = [arc(node.input, output)]
    while stack:
        on = stack.pop()
        up = network.arcs_into(ends(on)[0])
        if up and all(below(network, name)[1] == [output] for name in up):
            stack.extend(up)
        else:
            found.append(on)
    return sorted(found)


def backward(network: Network, output: str, field: str, ranges: Ranges) -> list[Propagated]:
    """Predicates from inverses, on each way up: at its place, or below the box that has no inverse."""
    found = []
    traced = trace(network, output, field, trials=False)
    for place in places(network, output):
        on = place
        while on not in traced:
            on = _towards(network, on, output)
        way = traced[on]
        found.append(_propagated(network, on, way.field, way.preimage(ranges), "backward"))
    return sorted({one.arc: one for one in found}.values(), key=lambda one: one.arc)


def forward(
    network: Network,
    on: str,
    by: str,
    output: str,
    field: str,
    ranges: Ranges,
    sample: Rows,
    *,
    functions: Functions | None = None,
    tolerance: float = 0.01,
    trials: int = 30,
) -> Propagated | None:
    """A range of the field `by` on an arc that removes output rows in `ranges`, found by trial.

    `sample` holds rows as they are on the arc. The range starts as all values of rows whose result is
    unwanted and is narrowed around their median, by bisection, until at most `tolerance` of the wanted
    output rows are missing. None if the sample has no unwanted result, or no range will do.
    """
    functions = functions or {}
    if by not in sample:
        raise InvalidArgument("the sample lacks the column", got=repr(by), hint=", ".join(sample))
    everything = push(network, on, output, sample, functions)
    unwanted_at = _inside(ranges, everything.values(field))
    wanted, unwanted = int((~unwanted_at).sum()), int(unwanted_at.sum())
    origins = np.unique(everything.origin[unwanted_at])
    if unwanted == 0 or len(origins) == 0:
        return None
    doomed = np.sort(np.asarray(sample[by], dtype=np.float64)[everything.rows_from(origins)])
    low_end, high_end = float(np.min(sample[by])), float(np.max(sample[by]))

    def attempt(narrow: float) -> Propagated:
        low, high = np.quantile(doomed, (narrow, 1 - narrow))
        tried = Ranges.between(
            -math.inf if low <= low_end else float(low), math.inf if high >= high_end else above(float(high))
        )
        kept = ~_inside(tried, np.asarray(sample[by], dtype=np.float64))
        rest = push(network, on, output, {name: column[kept] for name, column in sample.items()}, functions)
        still = _inside(ranges, rest.values(field))
        missed = 1 - int((~still).sum()) / wanted if wanted else 0.0
        covered = 1 - int(still.sum()) / unwanted
        return _propagated(network, on, by, tried, "forward", covered, max(0.0, missed))

    best = attempt(0.0)
    if best.missed <= tolerance:
        return best
    low, high = 0.0, 0.5
    found: Propagated | None = None
    for _ in range(trials):
        middle = (low + high) / 2
        tried = attempt(middle)
        if tried.missed <= tolerance:
            found, high = tried, middle
        else:
            low = middle
    return found if found is not None and found.covered > 0 else None


def combined(
    network: Network,
    output: str,
    field: str,
    ranges: Ranges,
    samples: Mapping[str, Rows],
    *,
    functions: Functions | None = None,
    tolerance: float = 0.01,
) -> list[Propagated]:
    """Backward as far as it goes; from each place where it stopped short, forward.

    `samples` has rows for arcs. They are asked where ranges cannot be pushed either; where none is given for a
    place, or no field of it will do, the drop stays where the way ended.
    """
    traced = trace(network, output, field)
    found: dict[str, Propagated] = {}
    for place in places(network, output):
        stop = place
        while stop not in traced:
            stop = _towards(network, stop, output)
        best: Propagated | None = None
        way = traced[stop]
        if stop != place and place in samples:
            for by in samples[place]:
                tried = forward(
                    network,
                    place,
                    by,
                    ends(stop)[1],
                    way.field,
                    way.preimage(ranges),
                    samples[place],
                    functions=functions,
                    tolerance=tolerance,
                )
                if tried is not None and (best is None or tried.covered > best.covered):
                    best = tried
        how = "backward" if way.monotone else "forward"
        chosen = best or _propagated(network, stop, way.field, way.preimage(ranges), how)
        found[chosen.arc] = chosen
    return sorted(found.values(), key=lambda one: one.arc)


# ── pushing a sample ─────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Pushed:
    """What became of a sample: columns, and for each row the sample row, or group of them, it came from."""

    columns: Rows
    origin: npt.NDArray[np.int64]
    member: npt.NDArray[np.int64]
    """For each row of the sample, the origin that it went into; −1 for one that was filtered."""

    def values(self, field: str) -> npt.NDArray[np.float64]:
        return np.asarray(self.columns[field], dtype=np.float64)

    def rows_from(self, origins: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        return np.isin(self.member, origins)


def push(network: Network, on: str, end: str, sample: Rows, functions: Functions) -> Pushed:
    """Push rows from an arc to a node (what enters it), along the one way there is between them.

    An aggregate takes the sample as one window.
    """
    count = len(next(iter(sample.values()))) if sample else 0
    rows: Rows = dict(sample)
    origin = np.arange(count)
    member = np.arange(count)
    while ends(on)[1] != end:
        box = network.nodes[ends(on)[1]]
        assert isinstance(box, Box)
        if isinstance(box, Filter):
            passes = np.broadcast_to(np.asarray(box.where.evaluate(rows), dtype=bool), origin.shape)
            member = np.where(np.isin(member, origin[passes]), member, -1)
            rows = {name: column[passes] for name, column in rows.items()}
            origin = origin[passes]
        elif isinstance(box, Map):
            rows = {
                name: np.broadcast_to(expression.evaluate(rows), origin.shape)
                for name, expression in box.select.items()
            }
        elif isinstance(box, Udf):
            if box.name not in functions:
                raise InvalidArgument(f"no function given for the udf {box.name!r}", hint="pass functions={…}")
            rows = {**rows, box.adds.name: functions[box.name](*(rows[name] for name in box.reads))}
        elif isinstance(box, Aggregate):
            rows, groups = _aggregate(box, rows, len(origin))
            renamed = np.full(count + 1, -1)
            renamed[origin] = groups
            member = np.where(member >= 0, renamed[member], -1)
            origin = np.arange(int(groups.max()) + 1 if len(groups) else 0)
        elif isinstance(box, Join):
            raise InvalidArgument("a sample of one side cannot be pushed through a join", got=box.name)
        elif box.makes_rows:
            raise InvalidArgument(f"a sample cannot be pushed through a {box.op}", got=box.name)
        on = _towards(network, on, end)
    return Pushed(rows, origin, member)


def _aggregate(box: Aggregate, rows: Rows, count: int) -> tuple[Rows, npt.NDArray[np.int64]]:
    keys = np.stack([rows[name] for name in box.by], axis=1) if box.by else np.zeros((count, 1))
    if not count:
        return {name: np.zeros(0) for name in (*box.by, *box.compute)}, np.zeros(0, dtype=np.int64)
    first, groups = np.unique(keys, axis=0, return_inverse=True)
    groups = groups.reshape(-1)
    size = np.bincount(groups).astype(np.float64)
    made: dict[str, npt.NDArray[np.float64]] = {name: first[:, index] for index, name in enumerate(box.by)}
    for name, expression in box.compute.items():
        assert isinstance(expression, Call)
        values = np.broadcast_to(np.asarray(expression.args[0].evaluate(rows), dtype=np.float64), (count,))
        if expression.name == "count":
            made[name] = size
        elif expression.name == "count_distinct":
            distinct = np.unique(np.stack([groups.astype(np.float64), values]), axis=1)
            made[name] = np.bincount(distinct[0].astype(np.int64), minlength=len(size)).astype(np.float64)
        elif expression.name in ("avg", "sum"):
            summed = np.bincount(groups, values).astype(np.float64)
            made[name] = summed / size if expression.name == "avg" else summed
        else:
            extreme = np.full(len(size), math.inf if expression.name == "min" else -math.inf)
            (np.minimum if expression.name == "min" else np.maximum).at(extreme, groups, values)
            made[name] = extreme
    return made, groups


def _towards(network: Network, on: str, end: str) -> str:
    """The next arc after one, on the way to a node."""
    head = ends(on)[1]
    for after in network.arcs_out_of(head):
        boxes, outputs = below(network, after)
        if ends(after)[1] == end or end in outputs or end in boxes:
            return after
    raise InvalidArgument(f"rows on {on!r} do not reach {end!r}")


def _propagated(
    network: Network, on: str, by: str, ranges: Ranges, how: str, covered: float = 1.0, missed: float = 0.0
) -> Propagated:
    whole = network.column(ends(on)[0], by).whole
    return Propagated(on, by, ranges, ranges.render(by, integers=whole), how, covered, missed)


def _inside(ranges: Ranges, values: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    found = np.zeros(len(values), dtype=bool)
    for low, high in ranges:
        found |= (values >= low) & (values < high)
    return found
