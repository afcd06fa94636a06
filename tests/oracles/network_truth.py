"""What drops do to a network, row by row from LSRM's definitions: it shares nothing with the planner.

Every source is a few thousand rows with values spread as its histograms say, each standing for a part of the rate.
A filter asks every row; where a field has no values it passes its selectivity of each. A join pairs what is left
of its sides: s · (rows of both, undropped) · (share left of one) · (share left of the other), with the columns of
the left side. A drop keeps `keep` of each row that matches and is not protected. Load is Σ cost · rows in
(LSRM 4.2).

Where sources name a key, a row stands for rows of all keys, and has a share of them left: keys 0 to that share. A
drop where a source or a split ends cuts them at `keep` times the largest share that drops above it left; of a pair
the keys are left that both of its rows have.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamshed.network import Catalog, Network
from streamshed.network.expressions.expression import parse

ROWS = 4096
_SPARED = "is protected"
_KEYS = "keys left"
_PRIMES = (2, 3, 5, 7, 11, 13)


@dataclass
class Batch:
    columns: dict[str, np.ndarray]
    weight: np.ndarray

    def where(self, text):
        predicate = parse(text) if isinstance(text, str) else text
        return np.broadcast_to(np.asarray(predicate.evaluate(self.columns), dtype=bool), self.weight.shape)


@dataclass
class Truth:
    percent: dict[str, float]
    value: dict[str, float]
    load: float
    selectivities: dict[str, float]


def truth(catalog: Catalog, drops=(), rows: int = ROWS) -> Truth:
    network = catalog.network
    whole = _push(catalog, (), rows, None)
    left = _push(catalog, drops, rows, whole)
    percent, value = {}, {}
    for output in network.outputs:
        on = f"{output.input}->{output.name}"
        before, after = whole[0][on], left[0][on]
        total = before.weight.sum()
        percent[output.name] = 100 * after.weight.sum() / total if total > 0 else 100.0
        graph = output.qos.value
        if graph is not None and graph.field in before.columns:
            worth = [batch.weight @ graph.many(batch.columns[graph.field]) for batch in (before, after)]
            value[output.name] = worth[1] / worth[0] if worth[0] > 0 else 1.0
        else:
            value[output.name] = percent[output.name] / 100
    return Truth(percent, value, left[1], whole[2])


def _rows_of(source, rate: float, rows: int) -> Batch:
    columns = {}
    for number, (name, spread) in enumerate(source.values.items()):
        # Even in every column, and in all of them together: multiples of irrational numbers.
        at = (np.arange(rows) * np.sqrt(_PRIMES[number]) + 0.5) % 1.0
        columns[name] = np.interp(at, np.cumsum([0.0, *spread.shares]), spread.edges)
    batch = Batch(columns, np.full(rows, rate / rows))
    spared = np.zeros(rows)
    if source.protect is not None:
        known = source.protect.fields() <= columns.keys()
        spared = batch.where(source.protect).astype(float) if known else np.full(rows, source.protected)
    columns[_SPARED] = spared
    columns[_KEYS] = np.ones(rows)
    return batch


def _key_names(network: Network) -> dict[str, tuple]:
    """The names that the key of each node's rows has; none where there is no key, or where it is not known."""
    names = {source.name: source.key for source in network.sources}
    for box in network.order:
        above = {names[each] for each in box.inputs}
        key = above.pop() if len(above) == 1 else ()
        if box.op == "map":
            new = {
                str(expression.name): name
                for name, expression in box.select.items()
                if hasattr(expression, "name")
            }
            key = tuple(new[name] for name in key) if all(name in new for name in key) else ()
        elif box.op == "join":
            key = key if set(key) <= set(box.on) else ()
        elif box.op not in ("filter", "union", "udf"):
            key = ()
        names[box.name] = key
    # Where no join is by key, rows go by themselves.
    parts = {network.part_of[box.name] for box in network.order if box.op == "join" and names[box.name]}
    return {name: key if network.part_of[name] in parts else () for name, key in names.items()}


def _push(catalog: Catalog, drops, rows: int, whole):
    network: Network = catalog.network
    leaving = {source.name: _rows_of(source, catalog.rates[source.name], rows) for source in network.sources}
    passing: dict[str, Batch] = {}
    passed: dict[str, float] = {}
    load = 0.0
    keys, largest = _key_names(network), {source.name: 1.0 for source in network.sources}
    readers = {node: sum(on.startswith(f"{node}->") for on in network.arcs) for node in keys}
    starts = {node for node in keys if node in largest or readers[node] > 1}
    for head in network.heads:
        entering = []
        for on in network.arcs_into(head.name):
            tail = on.split("->")[0]
            batch, most = leaving[tail], largest[tail]
            by_key = bool(keys[tail]) and tail in starts
            for drop in drops:
                if drop.at == on:
                    batch = _dropped(batch, drop, largest[tail] if by_key else None)
                    at_random = drop.where is None or drop.where.startswith("NOT ")
                    most *= drop.keep if by_key and at_random else 1.0
            largest[head.name] = max(most, largest.get(head.name, 0.0))
            passing[on] = batch
            entering.append(batch)
        if head in network.outputs:
            continue
        load += catalog.costs[head.name] * sum(batch.weight.sum() for batch in entering)
        leaving[head.name] = _through(catalog, head, entering, whole, shared=bool(keys[head.name]))
        came = sum(batch.weight.sum() for batch in entering)
        passed[head.name] = leaving[head.name].weight.sum() / came if came > 0 else 0.0
    return passing, load, passed


def _dropped(batch: Batch, drop, largest: float | None) -> Batch:
    spared = batch.columns[_SPARED]
    matches = np.ones(len(batch.weight), dtype=bool)
    if drop.where is not None:
        text, spare, _ = drop.where.partition(" AND NOT ")
        if not spare and text.startswith("NOT "):
            text = "TRUE"
        matches = batch.where(text)
    # A row that is protected in part only stands for some that are and some that are not.
    keep = np.where(matches, spared + (1 - spared) * drop.keep, 1.0)
    columns = dict(batch.columns)
    if largest is not None:
        assert set(spared.tolist()) <= {0.0, 1.0}, "with keys, rows are protected or not"
        left = columns[_KEYS]
        cut = np.where(matches & (spared == 0), np.minimum(left, drop.keep * largest), left)
        columns[_KEYS] = cut
        return Batch(columns, batch.weight * np.divide(cut, left, out=np.zeros(len(left)), where=left > 0))
    with np.errstate(all="ignore"):
        columns[_SPARED] = np.where(keep > 0, np.minimum(1.0, spared / keep), spared)
    return Batch(columns, batch.weight * keep)


def _paired_by_key(left: Batch, right: Batch, times: float) -> Batch:
    """Each row with each share of keys that the other side has: of those both have it is a pair."""
    share, rows = left.columns[_KEYS], np.divide(1.0, left.columns[_KEYS], out=np.zeros(len(left.weight)),
                                                 where=left.columns[_KEYS] > 0) * left.weight  # fmt: skip
    others = right.columns[_KEYS]
    parts = []
    for other in np.unique(others[others > 0]):
        partners = right.weight[others == other].sum() / other
        both = np.minimum(share, other)
        parts.append(Batch({**left.columns, _KEYS: both}, rows * (partners * times) * both))
    if not parts:
        return Batch(left.columns, left.weight * 0)
    columns = {name: np.concatenate([part.columns[name] for part in parts]) for name in left.columns}
    return Batch(columns, np.concatenate([part.weight for part in parts]))


def _through(catalog: Catalog, box, entering: list[Batch], whole, *, shared: bool = False) -> Batch:
    selectivity = catalog.selectivities[box.name]
    if box.op == "union":
        names = set.intersection(*(set(batch.columns) for batch in entering))
        columns = {name: np.concatenate([batch.columns[name] for batch in entering]) for name in names}
        return Batch(columns, np.concatenate([batch.weight for batch in entering]) * selectivity)
    if box.op == "join":
        left, right = entering
        sides = entering if whole is None else [whole[0][on] for on in catalog.network.arcs_into(box.name)]
        before = [side.weight.sum() for side in sides]
        if min(before) <= 0:
            return Batch(left.columns, left.weight * 0)  # nobody to pair with
        if shared:
            return _paired_by_key(left, right, selectivity * sum(before) / (before[0] * before[1]))
        pairs = selectivity * sum(before) * (left.weight.sum() / before[0]) * (right.weight.sum() / before[1])
        rows = left.weight.sum()
        return Batch(left.columns, left.weight * (pairs / rows if rows > 0 else 0.0))
    (batch,) = entering
    if box.op == "filter":
        if box.where.fields() <= batch.columns.keys():
            return Batch(batch.columns, batch.weight * batch.where(box.where))
        return Batch(batch.columns, batch.weight * selectivity)
    if box.op == "map":
        columns = {
            name: np.broadcast_to(expression.evaluate(batch.columns), batch.weight.shape)
            for name, expression in box.select.items()
            if expression.fields() <= batch.columns.keys()
        }
        hidden = {name: batch.columns[name] for name in (_SPARED, _KEYS)}
        return Batch({**columns, **hidden}, batch.weight * selectivity)
    return Batch({name: batch.columns[name] for name in (_SPARED, _KEYS)}, batch.weight * selectivity)
