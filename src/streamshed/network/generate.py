"""Random query networks in the manner of LSRM 5.2, for experiments and for tests.

A query is a tree: its streams are drawn in random order through filters and pairwise unions until one is
left. Sharing lets a query start from a box of an earlier one instead of from a source of its own. Rows carry
one `value`, spread evenly over [0, 100] (the paper's are integers; real numbers make every share exact), and
filters are `value > constant`. Each output has a value graph of two intervals: the lower has a utility drawn
by Zipf, the upper 1; its loss graph follows from that and from the values that reach it.

Joins, of which the paper's main network has none, pair rows by a `key` of their own, which says nothing of
the value. Behind a join a row has the value of its left side; a map that costs nothing, and is not counted
among the boxes, leaves the key alone on the right side. The window is as long as the selectivity asks for at
the rates of the network.

With `independent` each filter tests a field of its own, so that a row's fate at one filter says nothing of
the next; costs and selectivities then describe the network exactly, whatever is dropped.

>>> network = generate(seed=1)
>>> len(network.boxes), sum(box.op == "filter" for box in network.boxes), len(network.sources)
(47, 34, 18)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from streamshed.errors import InvalidArgument
from streamshed.network.builder import Builder
from streamshed.network.catalog import Catalog
from streamshed.network.expressions.ranges import INF, Ranges, above
from streamshed.network.graph import Join, Network
from streamshed.network.qos import Histogram

LOWEST, HIGHEST = 0.0, 100.0
_EVEN = Histogram.uniform(LOWEST, HIGHEST)
_BINARY = ("union", "join")
_KEYS = 100
"""Different values of a join's key."""


@dataclass(frozen=True, kw_only=True)
class NetworkShape:
    """What the generator is asked for. The defaults are the paper's main network."""

    queries: int = 5
    boxes: int = 47
    mix: Mapping[str, float] = field(default_factory=lambda: {"filter": 34.0, "union": 13.0}, hash=False)
    """Proportions of the box types: `filter`, `union`, `join`, `map`."""
    shared: int = 0
    """How many streams come from a box of an earlier query instead of from a source."""
    selectivity: tuple[float, float] = (0.8, 1.0)
    """Bounds of the filters' selectivities."""
    pairs: tuple[float, float] = (0.3, 0.6)
    """Bounds of the joins' selectivities: pairs for each row that enters on either side."""
    costs: Mapping[str, float] = field(
        default_factory=lambda: {"filter": 4e-5, "union": 2e-5, "map": 3e-5, "join": 6e-5}, hash=False
    )
    """Seconds per row of each box type."""
    skew: float = 0.0
    """Zipf's θ of the lower intervals' utilities; see `ranked`."""
    ranked: bool = False
    """How Zipf gives utilities. Drawn: k/levels, k from 1, with a chance proportional to k^-θ; with θ = 0 all
    are equally likely, and more skew makes low ones likelier. Ranked: the queries, in random order, get
    1, 2^-θ, 3^-θ, …; with θ = 0 all are alike, and more skew sets them further apart."""
    levels: int = 10
    lower: float = 0.75
    """Share of an output's rows that lie in its lower value interval."""
    independent: bool = False
    """Each filter tests its own field."""
    protect: float = 0.0
    """Chance that the sources protect their highest values, a tenth of them."""
    plain: float = 0.0
    """Chance of each output that it has a loss graph, and no value graph."""
    excess: float = 0.0
    """Load above the limit at the rates given to the sources: 0.22 is +22 %."""
    rates: tuple[float, float] = (1.0, 1.0)
    """Bounds of the sources' rates before they are scaled to `excess`."""
    headroom: float = 0.9

    def __post_init__(self) -> None:
        low, high = self.selectivity
        some = min(self.mix.values(), default=0) >= 0 < sum(self.mix.values())
        counts = self.counts() if some else {}
        unknown = sorted(set(self.mix) - set(self.costs))
        checks = (
            (self.queries >= 1, "a network needs a query", self.queries),
            (self.boxes >= self.queries, "every query needs a box", self.boxes),
            (not unknown, "a box type without a cost", unknown),
            (some, "a mix needs shares above 0", dict(self.mix)),
            (min(self.costs.values()) >= 0, "costs must not be negative", dict(self.costs)),
            (0 < low <= high <= 1, "selectivities must lie above 0 and up to 1", self.selectivity),
            (0 < self.pairs[0] <= self.pairs[1], "joins need selectivities above 0", self.pairs),
            (0 < self.lower < 1, "the lower interval's share must lie between 0 and 1", self.lower),
            (self.levels >= 1, "utilities need at least one level", self.levels),
            (self.skew >= 0, "skew must not be negative", self.skew),
            (
                0 <= self.shared < self.queries + sum(counts.get(op, 0) for op in _BINARY),
                "too many shared streams",
                self.shared,
            ),
        )
        for fine, problem, got in checks:
            if not fine:
                raise InvalidArgument(problem, got=got)

    def counts(self) -> dict[str, int]:
        """Boxes of each type: the mix in whole numbers, by largest remainder."""
        whole = sum(self.mix.values())
        shares = {op: self.boxes * weight / whole for op, weight in self.mix.items()}
        counts = {op: int(share) for op, share in shares.items()}
        rest = sorted(shares, key=lambda op: counts[op] - shares[op])
        for op in rest[: self.boxes - sum(counts.values())]:
            counts[op] += 1
        return counts


@dataclass(frozen=True)
class _Stream:
    """What is known of the rows that leave a node."""

    node: str
    rate: float
    values: Histogram
    sources: frozenset[str] = frozenset()


def generate(shape: NetworkShape | None = None, *, seed: int) -> Network:
    """A random network; the same shape and seed give the same one."""
    return _Generator(shape or NetworkShape(), seed).network()


def generate_sharing(
    queries: int = 20,
    *,
    seed: int,
    skew: float = 0.0,
    excess: float = 0.0,
    ranked: bool = True,
    own: int = 2,
    cost: float = 4e-5,
    selectivity: float = 0.9,
) -> Network:
    """The network of LSRM 6.4: one source, one common box, and from there as many identical queries.

    own: boxes that each query has to itself; every box costs `cost` and passes `selectivity` of its rows.

    The queries differ only in what their outputs want: values up to 75 have a utility given by Zipf (see
    `Shape.ranked`), higher ones 1. Filters test fields of their own, so that all values reach the outputs.

    >>> network = generate_sharing(seed=1)
    >>> len(network.outputs), network.split_points
    (20, ('common',))
    """
    shape = NetworkShape(queries=queries, boxes=queries, mix={"filter": 1.0}, skew=skew, ranked=ranked)
    rng = np.random.default_rng(seed)
    cut = round(HIGHEST * (1 - selectivity), 3)
    kept = 1 - cut / HIGHEST
    fields = ["value", "v", *(f"v{number}" for number in range(own))]
    builder = Builder(f"sharing-{seed}", capacity=1.0, headroom=shape.headroom)
    builder.source("s", ", ".join(f"{name} DOUBLE" for name in fields), values=dict.fromkeys(fields, _EVEN))
    builder.filter("common", "s", f"v > {cut}", cost=cost, selectivity=kept)
    for query, utility in enumerate(_utilities(shape, rng)):
        end = "common"
        for number in range(own):
            builder.filter(f"q{query}_f{number}", end, f"v{number} > {cut}", cost=cost, selectivity=kept)
            end = f"q{query}_f{number}"
        _output(builder, f"o{query}", _Stream(end, 1.0, _EVEN), utility, shape.lower)
    return loaded(builder.build(), excess)


def loaded(network: Network, excess: float) -> Network:
    """The network with its rates scaled so that its load is `excess` above its limit."""
    before, rates = Catalog.of(network).rates, Catalog.of(network).overloaded(excess).rates
    faster = max((rates[name] / rate for name, rate in before.items() if rate > 0), default=1.0)
    return replace(
        network,
        sources=tuple(replace(source, rate=rates[source.name]) for source in network.sources),
        # As many rows within a window as before, so that selectivities stay.
        boxes=tuple(
            replace(box, within=box.within / faster) if isinstance(box, Join) else box for box in network.boxes
        ),
    )


class _Generator:
    def __init__(self, shape: NetworkShape, seed: int) -> None:
        self._shape = shape
        self._rng = np.random.default_rng(seed)
        self._builder = Builder(f"random-{seed}", capacity=1.0, headroom=shape.headroom)
        own = range(shape.counts().get("filter", 0)) if shape.independent else ()
        self._fields = ["value", *(f"v{number}" for number in own)]
        self._keyed = shape.counts().get("join", 0) > 0
        self._sources = 0
        self._filters = 0
        self._shared = 0
        self._made: list[_Stream] = []
        # Nothing is drawn that is not asked for: the other draws stay the same.
        self._protects = shape.protect > 0 and float(self._rng.random()) < shape.protect

    def network(self) -> Network:
        # Utilities first: networks of different skew then have the same boxes.
        utilities = _utilities(self._shape, self._rng)
        plans = self._deal()
        leaves = [1 + sum(plan.count(op) for op in _BINARY) for plan in plans]
        for query, (plan, utility) in enumerate(zip(plans, utilities, strict=True)):
            own: list[_Stream] = []
            heads: list[_Stream] = []
            for leaf in range(leaves[query]):
                heads.append(self._leaf(heads, sum(leaves[query:]) - leaf))
            for number, op in enumerate(plan):
                own.append(self._box(f"q{query}_{op}{number}", op, heads))
                heads.append(own[-1])
            self._made += own
            plain = self._shape.plain > 0 and float(self._rng.random()) < self._shape.plain
            if plain:
                # The graph that the value graph would have given.
                bend = (100 * (1 - self._shape.lower), 1 - utility * self._shape.lower)
                self._builder.output(f"o{query}", heads[0].node, loss=[(100, 1.0), bend, (0, 0.0)])
            else:
                _output(self._builder, f"o{query}", heads[0], utility, self._shape.lower)
        return loaded(self._builder.build(), self._shape.excess)

    def _deal(self) -> list[list[str]]:
        """The boxes of each query, in random order; every query has one, the others go anywhere."""
        ops = [op for op, count in self._shape.counts().items() for _ in range(count)]
        plans: list[list[str]] = [[] for _ in range(self._shape.queries)]
        for number, at in enumerate(self._rng.permutation(len(ops)).tolist()):
            query = number if number < len(plans) else int(self._rng.integers(len(plans)))
            plans[query].append(ops[at])
        for plan in plans:
            self._rng.shuffle(plan)
        return plans

    def _leaf(self, heads: list[_Stream], room: int) -> _Stream:
        """A stream for a query to start from: a new source, or a box of an earlier query."""
        left = self._shape.shared - self._shared
        used = {head.node for head in heads}
        free = [stream for stream in self._made if stream.node not in used]
        if free and left and self._rng.random() < left / room:
            self._shared += 1
            return free[int(self._rng.integers(len(free)))]
        rate = float(self._rng.uniform(*self._shape.rates))
        name = f"s{self._sources}"
        self._sources += 1
        schema = ", ".join(f"{field} DOUBLE" for field in self._fields) + (", key INT" if self._keyed else "")
        values = dict.fromkeys(self._fields, _EVEN)
        if self._keyed:
            values["key"] = Histogram.uniform(1, _KEYS)
        protect = f"value > {HIGHEST * 0.9:g}" if self._protects else None
        self._builder.source(name, schema, rate=rate, values=values, protect=protect)
        return _Stream(name, rate, _EVEN, frozenset((name,)))

    def _box(self, name: str, op: str, heads: list[_Stream]) -> _Stream:
        """Add a box behind one stream of a query, or behind two, and give the stream that leaves it."""
        cost = self._shape.costs[op]
        first = heads.pop(int(self._rng.integers(len(heads))))
        if op == "union":
            second = heads.pop(int(self._rng.integers(len(heads))))
            self._builder.union(name, (first.node, second.node), cost=cost)
            values = Histogram.mixture([(first.rate, first.values), (second.rate, second.values)])
            assert values is not None
            return _Stream(name, first.rate + second.rate, values, first.sources | second.sources)
        if op == "join":
            # Rows of one source on both sides would meet themselves, and there would be more pairs than that.
            strangers = [head for head in heads if not head.sources & first.sources] or heads
            second = strangers[int(self._rng.integers(len(strangers)))]
            heads.remove(second)
            pairs = float(self._rng.uniform(*self._shape.pairs))
            rates = first.rate + second.rate
            # Pairs per second: rate · rate · (a window to each side) / keys.
            within = pairs * rates * _KEYS / (2 * first.rate * second.rate)
            self._builder.map(f"{name}_key", second.node, {"key": "key"}, cost=0.0)
            self._builder.join(name, (first.node, f"{name}_key"), ["key"], within, cost=cost, selectivity=pairs)
            return _Stream(name, pairs * rates, first.values, first.sources | second.sources)
        if op == "map":
            carried = [*self._fields, *(["key"] if self._keyed else [])]
            self._builder.map(name, first.node, {field: field for field in carried}, cost=cost)
            return _Stream(name, first.rate, first.values, first.sources)
        share = float(self._rng.uniform(*self._shape.selectivity))
        tested, spread = "value", first.values
        if self._shape.independent:
            tested, spread = f"v{self._filters}", _EVEN
            self._filters += 1
        cut = round(spread.quantile(LOWEST, HIGHEST, 1 - share), 3)
        passing = Ranges.between(above(cut), INF)
        kept = spread.share(passing)
        self._builder.filter(name, first.node, f"{tested} > {cut}", cost=cost, selectivity=kept)
        values = first.values if self._shape.independent else spread.restrict(passing)
        assert values is not None
        return _Stream(name, first.rate * kept, values, first.sources)


def _utilities(shape: NetworkShape, rng: np.random.Generator) -> list[float]:
    """Of each query's lower interval, by Zipf."""
    if shape.ranked:
        ranks = 1 + rng.permutation(shape.queries)
        return [float(rank ** -float(shape.skew)) for rank in ranks]
    levels = np.arange(1, shape.levels + 1)
    chance = levels ** -float(shape.skew)
    # One uniform number a query, so that more skew moves the same draws down.
    drawn = np.searchsorted(np.cumsum(chance / chance.sum()), rng.random(shape.queries))
    return [float(level) for level in levels[np.minimum(drawn, shape.levels - 1)] / shape.levels]


def _output(builder: Builder, name: str, end: _Stream, utility: float, lower: float) -> None:
    cut = round(end.values.quantile(LOWEST, HIGHEST, lower), 3)
    intervals = [[LOWEST, cut, utility], [cut, HIGHEST, 1.0]]
    builder.output(name, end.node, value=("value", intervals), histogram=end.values)
