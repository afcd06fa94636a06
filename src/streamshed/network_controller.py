"""The controller of a network: what its queries did comes in, one plan for all of them goes out.

    FlowSample ─► one overload detector a query ─► the share of the work that fits ─► policy ─► Plan

A detector is told of work instead of rows: what arrived, as the work it would be if all of it were kept, and
what was kept, as the work that it was; both in rows of average work. So costs that are wrong by a factor, and
what a micro-batch costs whatever is in it, are learned from the measured durations (`AffineCost`); of the
catalog only the proportions count. The policy then sheds until the load is the share that fits.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from streamshed.arbiter import hopeless
from streamshed.controller import check_latency
from streamshed.detect import AffineCost, KeepResponse, OverloadDetector
from streamshed.detect.rate import ArrivalRate
from streamshed.network.catalog import Catalog
from streamshed.network.graph import Box, ends
from streamshed.policies.contract import Decision, NetworkPolicy
from streamshed.policies.latency import LatencyPlanner
from streamshed.records import Mode, Overload, Plan, Sample

_RAISE = 4.0  # the share of the work that is done grows at most so many times from one plan to the next
_DEADBAND = 0.03  # changes of it smaller than this are not worth a new plan
_FLOOR = 0.02
_ALLOWED = 0.46  # share of the bound that a batch may take: half of it, less a margin
_LEAVE = 0.9  # of that, what batches of all that arrives must stay below for shedding to end
_FORGET = 0.8  # weight of what was counted before against what the newest batch counted


@dataclass(frozen=True, slots=True)
class FlowSample:
    """What one micro-batch of one query of a network did. With `finished=False`, a look at a running one."""

    query: str
    batch: int
    started: float
    at: float
    arrived: Mapping[str, int] = field(default_factory=dict)
    """Rows that each source gave."""
    passed: Mapping[str, int] = field(default_factory=dict)
    """Rows that passed each arc."""
    left: Mapping[str, int] = field(default_factory=dict)
    """Rows that left each box."""
    gap: float = 0.0
    waited: float = 0.0
    interval: float = 0.0
    backlog: float = 0.0
    share: float = 1.0
    """Share of the full load that the plan in force was meant to leave."""
    share_next: float = 1.0
    next_started: bool = True
    """As in `Sample`."""
    dropping: bool = False
    """Whether anything was dropped, by the plan in force."""
    finished: bool = True
    rehearsal: bool = False
    """Whether its plans were run for the first time, to be ready: how long that takes tells nothing of others."""

    @property
    def duration(self) -> float:
        return self.at - self.started

    @property
    def latency(self) -> float:
        """Worst end-to-end latency of its rows: longest wait plus the batch itself."""
        return self.waited + self.duration


class NetworkController:
    """Pure: the same samples in the same order give the same plans."""

    def __init__(
        self,
        policy: NetworkPolicy,
        catalog: Catalog,
        queries: Mapping[str, Catalog],
        *,
        latency: float,
        mode: Mode = Mode.ENFORCE,
        version: int = 0,
        outputs: Mapping[str, Collection[str]] | None = None,
    ) -> None:
        """`catalog` is of what physically runs; `queries` has for each query what runs in it.

        `outputs` has for each query its outputs; all of the network's where it is the only one.
        """
        self.mode = mode
        self.catalog = catalog
        self.decision: Decision | None = None
        """The policy's last answer."""
        self.share = 1.0
        """Share of the full load that the plan in force leaves."""
        self._latency = check_latency(latency)
        everything = [output.name for output in catalog.network.outputs]
        self._queries = {
            name: _QueryState(one, self._latency, (outputs or {}).get(name, everything))
            for name, one in queries.items()
        }
        self._rates: dict[str, dict[str, ArrivalRate]] = {name: {} for name in catalog.rates}
        self._plan = Plan(version=version, mode=mode)
        self._flows: dict[str, tuple[float, float]] = {}
        self.use(policy)

    def use(
        self,
        policy: NetworkPolicy,
        catalog: Catalog | None = None,
        queries: Mapping[str, Catalog] | None = None,
    ) -> None:
        """Change the policy, or what is known of the network and its queries; from the next sample on."""
        self.policy = policy
        if catalog is not None:
            self.catalog = catalog
        for name, one in (queries or {}).items():
            self._queries[name].catalog = one
        self._planner = policy.planner(self.catalog)
        self._planned_for = 0.0

    @property
    def plan(self) -> Plan:
        return self._plan

    @property
    def latency(self) -> float:
        return self._latency

    @latency.setter
    def latency(self, seconds: float) -> None:
        self._latency = check_latency(seconds)
        for state in self._queries.values():
            state.detector.latency = seconds

    def configure(self, mode: Mode, at: float) -> Plan:
        """Change the mode; it takes effect at once."""
        if mode is not self.mode:
            self.mode = mode
            drops = self._plan.wanted if mode is Mode.ENFORCE else ()
            self._settle(replace(self._plan, drops=drops, mode=mode, at=at, reason=f"mode set to {mode.value}"))
            if mode is Mode.OFF:
                self.share = 1.0
        return self._plan

    @property
    def rates(self) -> dict[str, float]:
        """Rows per second of each source, as measured; those of the catalog where nothing was seen yet."""
        found = dict(self.catalog.rates)
        for source, seen in self._rates.items():
            values = [rate.value for rate in seen.values()]
            if values:
                found[source] = max(values)
        return found

    @property
    def load(self) -> float:
        """Core-seconds per second that the measured rates ask for, by the catalog."""
        return self.catalog.measured(rates=self.rates).load

    @property
    def full_share(self) -> float | None:
        """Of all that arrives, the share that fits: above 1 when there is room, None while it is not known."""
        return min((s.full_share for s in self._queries.values() if s.full_share is not None), default=None)

    @property
    def limit(self) -> float | None:
        """The load that can be carried, on the catalog's scale.

        None while it is not known; and when nothing fits, however little there is to do, because what a batch
        costs in any case is more than the bound allows: then it is no amount of load that is in the way.
        """
        share = self.full_share
        limit = 0.0 if share is None else self.load * share
        return limit if limit > 0.0 else None

    def observe(self, sample: FlowSample) -> Plan:
        """Take a sample in and return the plan to be in force; unchanged, it is the same object."""
        state = self._queries[sample.query]
        if sample.finished:
            self._count(sample)
        state.observe(sample, self.catalog.selectivities)
        if self.mode is Mode.OFF:
            self.share = 1.0
            return self._settle(Plan(reason="mode is off", mode=self.mode, at=sample.at))
        overloads = {name: s.overload for name, s in self._queries.items() if s.overload is not None}
        if self._plan.wanted:
            # The next batch may fit because the last one was short, which it was because of the drops.
            lasting = {name: s.lasting() for name, s in self._queries.items() if name not in overloads}
            overloads |= {name: overload for name, overload in lasting.items() if overload is not None}
        vain = {name: overload for name, overload in overloads.items() if overload.in_vain}
        overloads = {name: overload for name, overload in overloads.items() if name not in vain}
        if not overloads:
            self.decision, self.share = None, 1.0
            plan = Plan(reason="nothing is shed: the next batch fits", mode=self.mode, at=sample.at)
            if vain:
                name = min(vain)
                reason = f"nothing is shed: query {name!r}: {vain[name].in_vain}"
                plan = replace(plan, reason=reason, overload=vain[name])
            return self._settle(plan)
        name = min(overloads, key=lambda one: (self._queries[one].fits, one))
        return self._shed(name, overloads[name], sample.at)

    def _shed(self, query: str, overload: Overload, at: float) -> Plan:
        fits = self._queries[query].fits
        share = max(_FLOOR, min(fits, _RAISE * max(self.share, _FLOOR)))
        rates = self.rates
        same = self._plan.wanted and self._plan.mode is self.mode and self._planned_for > 0
        if same and abs(share - self._planned_for) <= _DEADBAND * self._planned_for:
            return self._plan
        decision = self.decide(share, rates)
        self._planned_for = share
        self.decision = decision
        row = decision.row
        if row is None:
            self.share = 1.0
            return self._settle(Plan(reason="the policy sheds nothing", mode=self.mode, at=at, overload=overload))
        enforced = self.mode is Mode.ENFORCE
        if enforced:
            load = self.catalog.measured(rates=rates).load
            self.share = max(0.0, 1.0 - row.saved(rates) / load) if load > 0 else 1.0
        text = (
            f"{self.policy.name}: query {query!r} would take {overload.predicted:.2f} s for a batch and may take "
            f"{overload.allowed:.2f} s; {max(0.0, fits):.0%} of the work fits"
        )
        if share != fits:
            text += f", {share:.0%} is done for now"
        plan = Plan(
            drops=decision.drops if enforced else (),
            wanted=decision.drops,
            reason=text if enforced else f"dry run, nothing is dropped: {text}",
            mode=self.mode,
            at=at,
            overload=overload,
        )
        return self._settle(plan)

    def decide(self, share: float, rates: Mapping[str, float]) -> Decision:
        """The policy's answer for a load of which this share fits.

        The planner compares load with the limit of its catalog. Scaling the rates so that the limit is the
        wanted share of the load gives the wanted answer, without building its tables anew.
        """
        load = self.catalog.measured(rates=rates).load
        factor = self.catalog.limit / (share * load) if load > 0 else 1.0
        scaled = {name: rate * factor for name, rate in rates.items()}
        if isinstance(self._planner, LatencyPlanner):
            return self._planner.decide(scaled, latencies=self.latencies())
        return self._planner.decide(scaled)

    def latencies(self) -> dict[str, float]:
        """Of each output, the latency of its last batch."""
        return {
            output: state.latency
            for state in self._queries.values()
            for output in state.outputs
            if state.latency is not None
        }

    def _count(self, sample: FlowSample) -> None:
        for source, rows in sample.arrived.items():
            seen = self._rates[source]
            if sample.query not in seen:
                seen[sample.query] = ArrivalRate(window=self._latency / 2.0)
            seen[sample.query].observe(rows, sample.gap)
        if sample.dropping:
            return  # drops by value change what filters see; what passes then says little of the whole
        network = self.catalog.network
        for box, rows in sample.left.items():
            entered = sum(sample.passed.get(name, 0) for name in network.arcs_into(box))
            before = self._flows.get(box, (0.0, 0.0))
            self._flows[box] = (before[0] * _FORGET + entered, before[1] * _FORGET + rows)

    @property
    def selectivities(self) -> dict[str, float]:
        """Rows out per row in of each box, as measured while nothing was dropped."""
        return {box: out / entered for box, (entered, out) in self._flows.items() if entered >= 100}

    def _settle(self, plan: Plan) -> Plan:
        old = self._plan
        if not plan.wanted:
            self._planned_for = 0.0
        same = plan.wanted == old.wanted and plan.drops == old.drops and hopeless(plan) == hopeless(old)
        if plan.mode is old.mode and same:
            return old
        self._plan = replace(plan, version=old.version + 1)
        return self._plan


class _QueryState:
    """What is known of one query."""

    def __init__(self, catalog: Catalog, latency: float, outputs: Collection[str]) -> None:
        self.catalog = catalog
        self.outputs = outputs
        self.cost = AffineCost()
        self.response = KeepResponse()
        self.detector = OverloadDetector(self.cost, latency, response=self.response)
        self.overload: Overload | None = None
        self._arrivals = ArrivalRate(window=latency / 2.0)
        self.latency: float | None = None
        self.full_share: float | None = None
        mean = catalog.load / sum(catalog.rates.values()) if sum(catalog.rates.values()) > 0 else 0.0
        # What one row of average work costs; 1 where the catalog knows of no work: then rows are counted.
        self._unit = mean or 1.0
        self._counts_work = mean > 0

    @property
    def fits(self) -> float:
        """Share of the full load that fits, with what past drops taught of how much really goes.

        That is what fits into the next batch, and not more than would fit into one batch after the other.
        """
        shares = [one.share for one in (self.overload, self.lasting()) if one is not None]
        return 1.0 if not shares else min(1.0, self.response.keep_for(min(shares)))

    def lasting(self) -> Overload | None:
        """Whether what arrives is too much for one batch after the other, each as long as the bound allows."""
        if not self.cost.ready:
            return None
        # As the detector does, aim lower where durations scatter.
        allowed = _ALLOWED * self.detector.latency / (1.0 + 1.5 * self.cost.spread)
        rate = self._arrivals.value
        arriving = rate * allowed
        predicted = self.cost.predict(arriving, arriving)
        if predicted <= _LEAVE * allowed:
            return None
        fitting = self.cost.fitting(arriving, allowed)
        return Overload(arriving=arriving, fitting=fitting, rate=rate, predicted=predicted, allowed=allowed)

    def observe(self, sample: FlowSample, selectivities: Mapping[str, float]) -> None:
        catalog = replace(self.catalog, selectivities=selectivities)
        arrived = kept = 0.0
        if self._counts_work:
            arrived = sum(rows * catalog.source_coefficients[name] for name, rows in sample.arrived.items())
            for name, rows in sample.passed.items():
                head = catalog.network.nodes[ends(name)[1]]
                if isinstance(head, Box):
                    kept += rows * catalog.costs[head.name]
        else:
            arrived = float(sum(sample.arrived.values()))
            kept = arrived * sample.share
        if not sample.dropping:
            kept = arrived  # nothing was dropped; if the two differ, then because selectivities are off
        if sample.finished:
            self.latency = sample.latency
        told = Sample(
            at=sample.at,
            started=sample.started,
            arrived=round(arrived / self._unit),
            kept=round(min(kept, arrived) / self._unit),
            gap=sample.gap,
            waited=sample.waited,
            interval=sample.interval,
            backlog=sample.backlog,
            keep=sample.share,
            keep_next=sample.share_next,
            next_started=sample.next_started,
            finished=sample.finished,
            query=sample.query,
            batch=sample.batch,
        )
        self.response.learn(told)
        if told.finished:
            self._arrivals.observe(told.arrived, told.gap)
        self.overload = self.detector.observe(told)
        self._see(told)

    def _see(self, told: Sample) -> None:
        """How much of what arrives now would fit, overload or not."""
        if self.overload is not None:
            # What fits into the next batch may be all of it, because the last one was short.
            lasting = self.lasting()
            self.full_share = min(one.share for one in (self.overload, lasting) if one is not None)
        elif told.finished and self.cost.ready and told.gap > 0 and told.arrived > 0:
            allowed = _ALLOWED * self.detector.latency
            arriving = told.arrived / told.gap * allowed
            work = self.cost.predict(arriving, arriving) - self.cost.fixed
            spare = allowed - self.cost.fixed
            self.full_share = max(0.0, spare) / work if work > 0 else None
