"""What crosses the seams between the parts: frozen, plain, and able to become JSON.

    Sample ─► detector ─► Overload ─► policy ─► Plan ─► arbiter ─► Plan ─► runtime ─► Sample …

All times are seconds; `at` is seconds since the epoch on the runtime's clock, virtual or real.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from importlib import import_module
from typing import Any

LAS_WINDOW, LAS_TOLERANCE = 1024, 0.05
"""N and μ of Load-Aware Shedding, unless told otherwise: costs are put to use when they moved by less than a
twentieth in 1,024 rows (LAS V-A)."""
LAS_EPSILON, LAS_DELTA = 0.05, 0.1
"""ε and δ of its sketches: 55 columns, 4 rows."""


class Mode(str, Enum):
    """How far a plan is carried out."""

    OFF = "off"
    """Keep everything; do not even plan."""
    DRY_RUN = "dry-run"
    """Keep everything; report what would have been dropped."""
    ENFORCE = "enforce"
    """Drop."""


@dataclass(frozen=True, slots=True)
class Flows:
    """What went where in a network in one interval, in rows."""

    arrived: Mapping[str, int] = field(default_factory=dict)
    """That each source gave."""
    passed: Mapping[str, int] = field(default_factory=dict)
    """That passed each arc."""
    left: Mapping[str, int] = field(default_factory=dict)
    """That left each box."""
    queued: Mapping[str, int] = field(default_factory=dict)
    """That wait now, by the arc they came along; where the runtime knows."""
    latencies: Mapping[str, float] = field(default_factory=dict)
    """Seconds that rows of each output took, where the runtime knows it of each for itself."""
    would_shed: Mapping[str, int] = field(default_factory=dict)
    """That a load-aware box in dry-run would have dropped, by the arc they came along."""
    cut: Mapping[str, int] = field(default_factory=dict)
    """That came when the interval's time was used up, by the arc they would have gone along."""
    parsed: Mapping[str, int] = field(default_factory=dict)
    """Of sources whose rows are parsed late: that were parsed, and not dropped before."""
    expired: Mapping[str, int] = field(default_factory=dict)
    """That were older than the bound when the interval began, by the arc they would have gone along."""
    thinned: bool = False
    """Whether anything was dropped, by a plan, by the clock, for its age or by a load-aware box."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What happened in one interval: on Spark, one micro-batch.

    A sample with `finished=False` is a look at an interval that is still going on: only `at`, `started`, `keep`
    and `interval` mean something then, and `arrived` if it is not 0: the rows that the source gave it. How long it
    has been running is how long the rows of the next one have waited; it says nothing of how many those are. With
    `next_started=False` nothing runs at all: the source has nothing.

    arrived = kept + thinned + cut + expired.
    """

    at: float
    """When this was seen: the end of the interval, or now if it is not finished."""
    started: float
    """When the interval began: its rows arrived before this."""
    arrived: int = 0
    """Rows that reached the drop."""
    kept: int = 0
    """Rows that passed it."""
    cut: int = 0
    """Rows that came to the drop after the interval's time was used up, and were dropped for that alone."""
    expired: int = 0
    """Rows that were older than the bound when the interval began, and were dropped for that alone."""
    tail: float = 0.0
    """Seconds from when the last row had come to the drop to the end: shuffle, state, sink, commit; 0: not
    known."""
    tasks: int = 0
    """Tasks that the rows came to the drop in; 0: not known."""
    cores: int = 0
    """Tasks that can run at once; 0: not known."""
    gap: float = 0.0
    """Seconds over which these rows arrived: from the previous interval's start to this one's."""
    waited: float = 0.0
    """Longest time that one of them waited for this interval to start: `gap`, unless it was idle."""
    interval: float = 0.0
    """Shortest time between two starts (Spark's trigger interval); 0 when they follow at once."""
    backlog: float = 0.0
    """Rows that the source still held back after this interval, where it tells."""
    keep: float = 1.0
    """The keep fraction that was in force; of a network, the share of the work that the plan was to leave."""
    keep_next: float = 1.0
    """The keep fraction that the interval after this one started with, or would start with now."""
    next_started: bool = True
    """Whether that one has started; if not, a plan made now is for it, else for the one behind it."""
    next_planned: bool = True
    """Whether that one, if it has started, has its time budget; if not, that of a plan made now is for it."""
    version: int = 0
    """The version of the plan that was in force."""
    finished: bool = True
    draining: bool = False
    """Whether the query ends when it has read what was there at its start (Spark's `availableNow`)."""
    query: str = ""
    """Whose interval it was; samples of several queries may share one controller."""
    batch: int = -1
    """The runtime's own number of the interval."""
    rehearsal: bool = False
    """Whether plans were run for the first time, to be ready: how long that takes tells nothing of others."""
    flows: Flows | None = None
    """Of a network: what went where. `arrived` and `kept` are then what all sources gave; drops are further on."""

    @property
    def duration(self) -> float:
        """Seconds from the start to `at`."""
        return self.at - self.started

    @property
    def shed(self) -> int:
        """Rows that did not pass, for whatever reason."""
        return self.arrived - self.kept

    @property
    def thinned(self) -> int:
        """Rows that the plan's drops took: those that did not expire and were not cut."""
        return self.shed - self.cut - self.expired

    @property
    def latency(self) -> float:
        """Worst end-to-end latency of the interval's rows: longest wait plus the interval itself."""
        return self.waited + self.duration


@dataclass(frozen=True, slots=True)
class Overload:
    """How much fits: the detector's answer to *when* and *how much*."""

    arriving: float
    """Rows expected in the next interval."""
    fitting: float
    """Rows of those that can be kept within the bound."""
    rate: float
    """Estimated arrivals, rows per second."""
    predicted: float
    """Predicted duration of the next interval if everything is kept, seconds."""
    allowed: float
    """Duration that the bound allows it, seconds."""
    in_vain: str = ""
    """Why no drop, however large, would bring the bound back; empty if one would."""
    untouched: float = 0.0
    """Share that passes whatever is dropped: protected rows."""

    @property
    def share(self) -> float:
        """Fraction of the arriving rows that fits."""
        return 1.0 if self.arriving <= 0 else max(0.0, min(1.0, self.fitting / self.arriving))

    @property
    def keep(self) -> float:
        """What to keep of the rows that can be dropped, so that just that passes; below 0 if nothing is enough."""
        return (self.share - self.untouched) / (1.0 - self.untouched)


@dataclass(frozen=True, slots=True)
class Drop:
    """A drop at one place: rows that match `where` pass with probability `keep`, others always."""

    at: str
    keep: float
    where: str | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """What a policy would drop, and the share of the work that this leaves."""

    drops: tuple[Drop, ...] = ()
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class Plan:
    """Which drops are in force, and why. No drops: everything is kept."""

    drops: tuple[Drop, ...] = ()
    reason: str = "nothing is shed"
    version: int = 0
    at: float = 0.0
    mode: Mode = Mode.ENFORCE
    overload: Overload | None = None
    wanted: tuple[Drop, ...] = ()
    """What the policy asked for before the arbiter; in dry-run, what would have been dropped."""
    share: float = 1.0
    """Share of the work that carrying out `wanted` leaves."""
    budget: float | None = None
    """Seconds from an interval's own time until which rows may pass the drop; None: as long as it takes."""
    grace: int = 0
    """Rows that pass whatever the clock says, shared among the tasks: a pause is no overload."""

    @property
    def keep(self) -> float:
        """Keep fraction in force, over all drops."""
        return math.prod((drop.keep for drop in self.drops), start=1.0)

    @property
    def would_keep(self) -> float:
        """Keep fraction that enforcing the plan would give."""
        return math.prod((drop.keep for drop in self.wanted or self.drops), start=1.0)

    def would_keep_at(self, place: str) -> float:
        """The same for the drops at one place."""
        return math.prod((drop.keep for drop in self.wanted or self.drops if drop.at == place), start=1.0)


def to_json(record: Sample | Plan | Overload) -> str:
    """One line of JSON."""
    return json.dumps(asdict(record), sort_keys=True, separators=(",", ":"))


def dump_samples(samples: Iterable[Sample]) -> str:
    """A log of samples, one JSON object a line; `load_samples` reads it back unchanged."""
    return "".join(to_json(sample) + "\n" for sample in samples)


def load_samples(text: str) -> list[Sample]:
    """Read a log of samples written by `dump_samples`.

    >>> log = [Sample(at=2.0, started=1.0, arrived=10, kept=10)]
    >>> load_samples(dump_samples(log)) == log
    True
    """
    decoded: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines() if line.strip()]
    flows = [Flows(**fields["flows"]) if fields.get("flows") else None for fields in decoded]
    return [Sample(**fields | {"flows": each}) for fields, each in zip(decoded, flows, strict=True)]


def __getattr__(name: str) -> Any:
    if name == "QualityReport":
        # By name: records stand below what is made of them.
        former = import_module("streamshed.quality.former_names")
        former.warn_of("QualityReport", "streamshed.Report")
        return import_module("streamshed.quality.report").Report
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
