"""Drops as numbers: what a running plan reads, and the SQL that reads it.

Every arc at which a policy may drop has a slot in one array of numbers:

    inside, outside, low₁, high₁, …, lowₖ, highₖ

A row passes if its hash, a whole number below 2⁵³, is less than `inside` if its value lies in one of the
ranges [low, high), and less than `outside` if not. Drops at random have both the same; drops by value spare
what is outside. An arc with no field to drop by has a slot of one number. A source whose rows are still raw
has a slot in front of the parse as well: what all of its arcs drop at random, they drop there. Null means keep.

On arcs on which whole keys are dropped (`network.value_flow.shared_keys`) the hash is the key's, and the same one
everywhere; the numbers then are shares of all keys.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

from streamshed.errors import InvalidArgument
from streamshed.network.catalog import Catalog
from streamshed.network.expressions.analysis import passing
from streamshed.network.expressions.expression import Binary, Expression, Field, Literal, Unary, parse
from streamshed.network.expressions.ranges import Ranges
from streamshed.network.graph import Column, Network, ends
from streamshed.network.parse_step import early, lifted, with_parse_boxes
from streamshed.network.value_flow.drop_fields import drop_fields
from streamshed.network.value_flow.flow_model import FlowModel
from streamshed.network.value_flow.shared_keys import Key, key_places, key_shares
from streamshed.policies.contract import protection
from streamshed.records import Drop
from streamshed.spark.network.query_layout import candidates

WHOLE = float(1 << 53)
"""Above every hash: keep all."""
RANGES = 4
"""Ranges of a drop by value; more are merged to fewer by keeping the smallest."""
_MOST = sys.float_info.max
_NONE = (_MOST, -_MOST)  # a range that holds nothing
_ANY_KEY = "key"

Numbers = tuple[float | None, ...]
NumberAt = Callable[[int], str]
"""SQL for the number at a place of the array."""


@dataclass(frozen=True, slots=True)
class Slot:
    """Where the numbers of one arc stand, and what its drop reads."""

    arc: str
    at: int
    field: str | None
    protect: Expression | None
    key: Key | None = None
    """The columns of the key by which rows are dropped there; None: each by itself."""

    @property
    def outside(self) -> int:
        """Where in the slot the number for rows outside of all ranges stands."""
        return 0 if self.field is None else 1

    @property
    def size(self) -> int:
        return 1 if self.field is None else 2 + 2 * RANGES


@dataclass(frozen=True)
class Slots:
    """The slots of a network."""

    network: Network
    slots: Mapping[str, Slot]
    raw: Mapping[str, int]
    """For sources that are parsed late, where the number of the drop before the parse stands."""

    @staticmethod
    def of(network: Network) -> Slots:
        fields = drop_fields(network)
        protect, keys = protection(network), key_places(network)
        found: dict[str, Slot] = {}
        at = 0
        for name in candidates(network):
            if name in protect:
                found[name] = Slot(name, at, fields.get(name), protect[name], keys.get(name))
                at += found[name].size
        # Before the parse nobody knows the key.
        by_key = {ends(on)[0] for on in keys}
        raw = [one.name for one in network.sources if one.parse is not None and one.name not in by_key]
        return Slots(network, found, {name: at + index for index, name in enumerate(raw)})

    @cached_property
    def size(self) -> int:
        return sum(slot.size for slot in self.slots.values()) + len(self.raw)

    def encode(self, drops: Sequence[Drop]) -> Numbers:
        """The numbers for a plan. An arc may drop by value and, of what is left, at random."""
        numbers: list[float | None] = [None] * self.size
        by_arc: dict[str, list[Drop]] = {}
        for drop in drops:
            by_arc.setdefault(drop.at, []).append(drop)
        before_parse = self._before_parse(by_arc)
        left = key_shares(self.network, drops)
        for source, keep in before_parse.items():
            numbers[self.raw[source]] = float(round(keep * WHOLE))
        for on, several in by_arc.items():
            slot = self.slots.get(on)
            if slot is None:
                raise InvalidArgument("no drop can be made on this arc", got=on, hint=", ".join(self.slots))
            inside = outside = 1.0
            spans: list[tuple[float, float]] = []
            for drop in several:
                ranges = ranges_of(drop, slot)
                inside *= drop.keep
                if ranges is None:
                    outside *= drop.keep
                else:
                    spans = _few(ranges)
            inside, outside = inside * left.get(on, 1.0), outside * left.get(on, 1.0)
            share = before_parse.get(ends(on)[0], 1.0)
            if share < 1.0:
                # What the drop before the parse left, thinned further; none of it where that is enough.
                inside, outside = (min(1.0, keep / share) if share > 0 else 1.0 for keep in (inside, outside))
                if min(inside, outside) >= 1.0:
                    continue
            if slot.field is None or not spans:
                numbers[slot.at : slot.at + slot.size] = self._random(slot, _threshold(outside))
                continue
            flat = [end for span in [*spans, *[_NONE] * (RANGES - len(spans))] for end in span]
            numbers[slot.at : slot.at + slot.size] = [_threshold(inside), _threshold(outside), *flat]
        return tuple(numbers)

    def _random(self, slot: Slot, threshold: float) -> list[float | None]:
        if slot.field is None:
            return [threshold]
        return [threshold, threshold, *[end for _ in range(RANGES) for end in _NONE]]

    def _before_parse(self, drops: Mapping[str, Sequence[Drop]]) -> dict[str, float]:
        """Sources all of whose arcs drop at random, with the share that the mildest of them keeps so."""
        every = [drop for several in drops.values() for drop in several]
        shares = {source: early(every, self.network.arcs_out_of(source)) for source in self.raw}
        return {source: share for source, share in shares.items() if share < 1.0}

    def active(self, numbers: Numbers, arc: str) -> bool:
        """Whether anything is dropped on an arc."""
        slot = self.slots.get(arc)
        return slot is not None and numbers[slot.at] is not None

    def active_raw(self, numbers: Numbers, source: str) -> bool:
        """Whether anything of a source is dropped before it is parsed."""
        return source in self.raw and numbers[self.raw[source]] is not None

    def rehearsal(self) -> Numbers:
        """Numbers by which every row is looked at as if it might go, and none goes (one in 2⁵³ might)."""
        numbers: list[float | None] = [WHOLE - 1.0] * self.size
        for slot in self.slots.values():
            if slot.field is not None:
                spans = [(-_MOST, _MOST), *[_NONE] * (RANGES - 1)]
                numbers[slot.at + 2 : slot.at + slot.size] = [end for span in spans for end in span]
        return tuple(numbers)

    def ranges(self, numbers: Numbers, arc: str) -> int:
        """How many ranges the drop on an arc has: 0 where it is at random."""
        slot = self.slots[arc]
        if slot.field is None:
            return 0
        first = slot.at + 2
        return sum(numbers[at : at + 2] not in ((None, None), _NONE) for at in range(first, first + 2 * RANGES, 2))

    def left(self, drops: Sequence[Drop], catalog: Catalog) -> float:
        """Share of the work that drops leave, by the catalog."""
        model = FlowModel(with_parse_boxes(catalog))
        left = model.state(model.keeps(lifted(drops, catalog))).load
        return left / catalog.load if catalog.load > 0 else 1.0

    def shares(self, drops: Sequence[Drop], catalog: Catalog) -> Mapping[str, float]:
        """Share of its rows that each output is to get under drops."""
        if not drops:
            return {}
        model = FlowModel(catalog)
        return {name: percent / 100.0 for name, percent in model.delivery(model.state(model.keeps(drops))).items()}

    def keeps(self, drops: Sequence[Drop], catalog: Catalog) -> dict[str, float]:
        """Share of the rows that drops let pass on each of their arcs, as the model has it."""
        model = FlowModel(catalog)
        state = model.state(model.keeps(drops))
        found = {}
        for on in {drop.at for drop in drops}:
            reaching = float(state.reaching[on].sum())
            found[on] = state.rows(on) / reaching if reaching > 0 else 1.0
        return found

    def work(self, drops: Sequence[Drop], catalog: Catalog) -> dict[str, float]:
        """What the box below each arc has to do under drops, in seconds of work a second."""
        model = FlowModel(catalog)
        state = model.state(model.keeps(drops))
        costs = catalog.costs
        return {on: state.rows(on) * costs.get(ends(on)[1], 0.0) for on in state.passing}

    # ── SQL ──────────────────────────────────────────────────────────────────────────────────────

    def passes(self, arc: str, columns: Sequence[Column], number: NumberAt, ranges: int = RANGES) -> str:
        """True for a row that the drop on an arc lets pass; only its first `ranges` ranges are looked at."""
        slot = self.slots[arc]
        value = row_hash(ends(arc)[0], [column.name for column in columns])
        if slot.key is not None:
            value = row_hash(_ANY_KEY, slot.key)
        kept = _below(value, number(slot.at + slot.outside))
        if slot.field is not None and ranges:
            field = f"CAST({quoted(slot.field)} AS DOUBLE)"
            ends_at = [(slot.at + 2 + 2 * k, slot.at + 3 + 2 * k) for k in range(ranges)]
            within = " OR ".join(
                f"({field} >= {number(low)} AND {field} < {number(high)})" for low, high in ends_at
            )
            # By value only, the number for outside is 2⁵³, and no hash is computed there.
            kept = f"IF({within}, {_below(value, number(slot.at))}, {kept})"
        spared = "" if slot.protect is None else f" OR {sql(slot.protect)}"
        return f"COALESCE({number(slot.at)} IS NULL OR {kept}{spared}, TRUE)"

    def stands_for(self, arc: str, number: NumberAt) -> str:
        """For how many rows one stands that passed the drop on an arc: 1 over the share kept of its like."""
        slot = self.slots[arc]
        threshold = number(slot.at + slot.outside)
        if slot.field is not None:
            field = f"CAST({quoted(slot.field)} AS DOUBLE)"
            ends_at = [(slot.at + 2 + 2 * k, slot.at + 3 + 2 * k) for k in range(RANGES)]
            within = " OR ".join(f"({field} >= {number(a)} AND {field} < {number(b)})" for a, b in ends_at)
            threshold = f"IF({within}, {number(slot.at)}, {threshold})"
        spared = "" if slot.protect is None else f" OR {sql(slot.protect)}"
        return f"IF(COALESCE({number(slot.at)} IS NULL{spared}, TRUE), 1D, {_over(threshold)})"

    def stands_for_raw(self, source: str, number: NumberAt) -> str:
        """The same for the drop before the parse."""
        return f"IF({number(self.raw[source])} IS NULL, 1D, {_over(number(self.raw[source]))})"

    def passes_raw(self, source: str, columns: Sequence[str], number: NumberAt) -> str:
        """True for a row that the drop before the parse lets pass."""
        limit = number(self.raw[source])
        return f"COALESCE({limit} IS NULL OR {_below(row_hash(f'{source} raw', columns), limit)}, TRUE)"


def ranges_of(drop: Drop, slot: Slot) -> Ranges | None:
    """The values that a drop takes, None for all; protected rows are the slot's business."""
    if drop.where is None:
        return None
    where: Expression | None = parse(drop.where)
    if slot.protect is not None:
        spared = Unary("NOT", slot.protect)
        if where == spared:
            return None
        if isinstance(where, Binary) and where.op == "AND" and where.right == spared:
            where = where.left
    assert where is not None
    found = passing(where)
    if slot.field is None or not found.exact or set(found.ranges) - {slot.field}:
        raise InvalidArgument(
            f"a drop on {drop.at} can only take ranges of {slot.field or 'nothing'}", got=repr(drop.where)
        )
    return found.of(slot.field)


def _threshold(keep: float) -> float:
    return float(round(keep * WHOLE))


def _few(ranges: Ranges) -> list[tuple[float, float]]:
    """Finite ends, and not more ranges than a slot has: what does not fit is kept."""
    spans = [(max(low, -_MOST), min(high, _MOST)) for low, high in ranges]
    widest = sorted(spans, key=lambda span: span[0] - span[1])[:RANGES]
    return sorted(widest)


def quoted(name: str) -> str:
    """A name as SQL, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


def text(value: str) -> str:
    """A string as SQL.

    Which escapes Spark understands inside quotes is a setting of the session, and so is what becomes of `${…}`.
    Bytes mean the same everywhere.

    >>> text("a;b"), text("it's")
    ("'a;b'", "CAST(X'69742773' AS STRING)")
    """
    if any(mark in value for mark in "'\\$"):
        return f"CAST(X'{value.encode().hex()}' AS STRING)"
    return f"'{value}'"


def sql(expression: Expression) -> str:
    """An expression as Spark takes it: names quoted."""
    return _quote(expression).sql()


def _quote(expression: Expression) -> Expression:
    if isinstance(expression, Field):
        return Field(quoted(expression.name))
    if isinstance(expression, Literal):
        value = expression.value
        if isinstance(value, float) and value != int(value):
            return Field(f"({value!r}D)")  # 0.1 would be a decimal, and so would all that is computed with it
        return Field(text(value)) if isinstance(value, str) else expression
    changes: dict[str, object] = {}
    for one in fields(expression):
        value = getattr(expression, one.name)
        if isinstance(value, Expression):
            changes[one.name] = _quote(value)
        elif isinstance(value, tuple):
            changes[one.name] = tuple(_quote(item) for item in value)
    return replace(expression, **changes) if changes else expression


def row_hash(place: str, columns: Sequence[str]) -> str:
    """A stable hash of a row, below 2⁵³; another one at each node, so that drops in a row are independent."""
    return f"shiftrightunsigned(xxhash64({text(place)}, {', '.join(map(quoted, columns))}), 11)"


def _over(threshold: str) -> str:
    return f"COALESCE({WHOLE:.0f}D / GREATEST({threshold}, 1D), 1D)"


def _below(value: str, number: str) -> str:
    return f"({number} >= {WHOLE:.0f}D OR {value} < {number})"
