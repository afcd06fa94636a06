"""The controller of a network in a closed loop with a model of Spark: fixed cost for a batch, so much a row.

Plans have a budget: when it is over, the rest of a batch's rows is dropped where they come in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from streamshed.loop import Controller, Limits, QueryLoad
from streamshed.loop.arrival_rate import ArrivalRate
from streamshed.loop.network_shedding import NetworkShedding
from streamshed.loop.steady_rate import SteadyRate
from streamshed.loop.workload import CatalogWork
from streamshed.network import Builder, Catalog, Network
from streamshed.network.graph import Box, ends
from streamshed.policies.registry import network_policy
from streamshed.records import Choice, Flows, Mode, Sample

BOUND = 4.0


def network() -> Network:
    return (
        Builder("n", capacity=2.0)
        .source("s", "x DOUBLE", rate=1000, values={"x": (0, 100)})
        .map("m", "s", {"x": "x"}, cost=1e-4)
        .filter("f", "m", "x > 50", cost=2e-4, selectivity=0.5)
        .filter("g", "m", "x > 20", cost=4e-4, selectivity=0.8)
        .output("o", "f", loss=[(100, 1.0), (50, 0.9), (0, 0.0)])
        .output("p", "g", loss=[(100, 1.0), (0, 0.0)])
        .build()
    )


class Spark:
    """Runs batch after batch; what a plan drops is dropped in proportion, one batch later.

    A batch takes `fixed`, half of it before its rows and half behind, and 2 µs to read a row.
    """

    def __init__(self, controller: Controller, *, factor: float = 1.0, fixed: float = 0.3) -> None:
        self.controller, self.factor, self.fixed = controller, factor, fixed
        self.catalog = Catalog.of(network())
        self.now = 0.0
        self.last_start = -1.0
        self.batch = 0
        self.latencies: list[tuple[float, float]] = []
        self.delivered: list[tuple[float, dict[str, float]]] = []
        """When a batch began, and what the outputs got, in rows a second."""
        self.cut = 0
        self.planned = self.in_force()

    def in_force(self) -> tuple[dict[str, float], float, float]:
        plan = self.controller.plan
        keeps = {drop.at: drop.keep for drop in plan.drops}
        budget = float("inf") if plan.budget is None else plan.budget
        return keeps, self.controller.share if keeps else 1.0, budget

    def run(self, rate: Callable[[float], float], seconds: float) -> None:
        while self.now < seconds:
            start, gap = self.now, self.now - self.last_start
            arrived = rate(start) * gap
            keeps, share, budget = self.planned
            flows = self.catalog.measured(rates={"s": arrived}).flows(keeps)
            work = sum(
                rows * self.catalog.costs[head.name]
                for on, rows in flows.items()
                if isinstance(head := self.catalog.network.nodes[ends(on)[1]], Box)
            )
            rows = self.factor * work + 2e-6 * arrived
            grace = self.controller.plan.grace / max(arrived, 1.0)
            passing = min(1.0, max(grace, (budget - self.fixed / 2) / rows)) if rows > 0 else 1.0
            flows = {on: passed * passing for on, passed in flows.items()}
            cut = round(arrived * share * (1.0 - passing))  # of those that the plan would have kept
            self.cut += cut
            took = self.fixed + self.factor * work * passing + 2e-6 * arrived
            look = start + self.controller.look_after
            while look < start + took:  # the monitor looks at a batch that runs for long
                self.controller.observe(
                    Sample(
                        at=look,
                        started=start,
                        keep=share,
                        finished=False,
                        query="q",
                        batch=self.batch,
                        flows=Flows(thinned=bool(keeps)),
                    )
                )
                look += 0.08 * (look - start)
            self.now = start + took
            # The next batch is planned before the report of this one comes.
            self.planned = self.in_force()
            passed = {on: round(rows) for on, rows in flows.items()}
            self.controller.observe(
                Sample(
                    at=self.now,
                    started=start,
                    arrived=round(arrived),
                    kept=round(arrived * passing),
                    cut=cut,
                    tail=self.fixed / 2,
                    gap=gap,
                    waited=gap,
                    keep=share,
                    keep_next=self.planned[1],
                    query="q",
                    batch=self.batch,
                    flows=Flows(
                        arrived={"s": round(arrived)},
                        passed=passed,
                        left={"m": passed["s->m"], "f": passed["f->o"], "g": passed["g->p"]},
                        thinned=bool(keeps) or cut > 0,
                    ),
                )
            )
            self.latencies.append((start, gap + took))
            self.delivered.append((start, {"o": flows["f->o"] / gap, "p": flows["g->p"] / gap}))
            self.last_start, self.batch = start, self.batch + 1


def controller(policy: str = "lsrm-random", mode: Mode = Mode.ENFORCE, floor: float = 0.02) -> Controller:
    catalog = Catalog.of(network())
    shedding = NetworkShedding(network_policy(policy), catalog, rate=lambda: ArrivalRate(window=BOUND / 2))
    work = CatalogWork(catalog, lambda: shedding.catalog.selectivities)
    return Controller(
        shedding,
        latency=BOUND,
        limits=Limits(mode, floor),
        load=lambda query, bound: QueryLoad(bound, work=work),
    )


def shedding(controller: Controller) -> NetworkShedding:
    assert isinstance(controller.policy, NetworkShedding)
    return controller.policy


@pytest.mark.parametrize("factor", [0.5, 1.0, 3.0])
@pytest.mark.parametrize(
    "policy", ["random", "input-uniform", "aurora-greedy", "lsrm-random", "optimal", "latency"]
)
def test_an_overload_is_brought_inside_the_bound_whatever_the_costs_of_the_spec(
    policy: str, factor: float
) -> None:
    """The catalog's costs are off by `factor`; three times what fits arrives."""
    spark = Spark(controller(policy), factor=factor)
    fits = 1.0 / (factor * spark.catalog.source_coefficients["s"])
    spark.run(lambda t: 0.3 * fits if t < 20 else 3 * fits, 120)
    settled = [latency for start, latency in spark.latencies if start > 40]
    assert max(settled) <= BOUND
    # And not by shedding far more than needed: batches are of a good length.
    assert sum(settled) / len(settled) > 0.5 * BOUND
    assert spark.controller.plan.drops


def test_a_lasting_overload_is_shed_evenly() -> None:
    """A batch is short because of the drops; that the next would fit whole is no reason to keep it whole."""
    spark = Spark(controller("input-uniform"), fixed=0.8)
    busy = 0.8 / spark.catalog.source_coefficients["s"]
    dropping: list[bool] = []

    def rate(t: float) -> float:
        if t > 30:
            dropping.append(bool(spark.controller.plan.drops))
        # Something else held a batch up; the ones after it are short, since most of what waits is dropped.
        spark.factor = 8.0 if 22 < t < 25 else 1.0
        return 0.2 * busy if t < 20 else busy

    spark.run(rate, 120)
    assert len(dropping) > 20
    assert all(dropping)


def test_no_overload_no_drop_and_what_was_shed_is_given_back() -> None:
    spark = Spark(controller())
    spark.run(lambda t: 500.0, 30)
    assert not spark.controller.plan.drops
    spark.run(lambda t: 8000.0, 60)
    assert spark.controller.plan.drops
    spark.run(lambda t: 500.0, 120)
    assert not spark.controller.plan.drops
    assert spark.controller.share == 1.0


def test_a_fixed_cost_that_breaks_the_bound_sheds_nothing_and_says_so() -> None:
    spark = Spark(controller(), fixed=2.5)
    spark.run(lambda t: 100.0 + 50.0 * (t % 3), 120)
    assert not spark.controller.plan.wanted
    assert "query 'q': a batch takes 2.5 s whatever is in it" in spark.controller.plan.reason
    version = spark.controller.plan.version
    spark.run(lambda t: 100.0 + 50.0 * (t % 3), 200)
    assert spark.controller.plan.version == version, "said once"


def test_the_policy_decides_who_loses() -> None:
    """`o` keeps most of its utility at half of its rows; `p` does not."""
    rates = {}
    for policy in ("random", "lsrm-random"):
        spark = Spark(controller(policy))
        spark.run(lambda t: 500.0 if t < 20 else 4000.0, 80)
        settled = [got for start, got in spark.delivered if start > 40]
        rates[policy] = {name: sum(got[name] for got in settled) / len(settled) for name in "op"}
    graphs = {output.name: output.qos.loss for output in network().outputs}

    def utility(delivered: dict[str, float]) -> float:
        full = {"o": 2000.0, "p": 3200.0}
        return sum(graphs[name](100 * rows / full[name]) for name, rows in delivered.items())  # type: ignore[misc]

    assert utility(rates["lsrm-random"]) > utility(rates["random"])


def test_dry_run_plans_and_drops_nothing() -> None:
    spark = Spark(controller(mode=Mode.DRY_RUN))
    spark.run(lambda t: 500.0 if t < 20 else 4000.0, 40)
    plan = spark.controller.plan
    assert plan.wanted
    assert not plan.drops
    assert "dry run" in plan.reason
    spark.controller.configure(mode=Mode.ENFORCE, at=41.0)
    assert spark.controller.plan.drops == plan.wanted
    spark.controller.configure(mode=Mode.OFF, at=42.0)
    assert not spark.controller.plan.drops


def test_the_policy_can_be_changed_while_it_runs() -> None:
    spark = Spark(controller("input-cost-uniform"))
    spark.run(lambda t: 500.0 if t < 20 else 4000.0, 60)
    assert {drop.at for drop in spark.controller.plan.drops} == {"s->m"}
    known = shedding(spark.controller)
    known.use(network_policy("lsrm-random"), known.catalog)
    spark.controller.replan()
    spark.run(lambda t: 4000.0, 70)
    assert {drop.at for drop in spark.controller.plan.drops} != {"s->m"}


def test_selectivities_are_learned_while_nothing_is_dropped() -> None:
    spark = Spark(controller())
    spark.catalog = spark.catalog.measured(selectivities={"f": 0.1})
    spark.run(lambda t: 500.0, 30)
    assert shedding(spark.controller).selectivities["f"] == pytest.approx(0.1, rel=0.05)


def test_the_same_samples_give_the_same_plans() -> None:
    runs = []
    for _ in range(2):
        spark = Spark(controller())
        spark.run(lambda t: 500.0 if t < 20 else 4000.0, 50)
        runs.append((spark.controller.plan, spark.latencies))
    assert runs[0] == runs[1]


def test_the_limit_is_a_load_or_not_known() -> None:
    """A batch that costs more than the bound allows whatever is in it has no load that would fit."""
    spark = Spark(controller())
    known = shedding(spark.controller)
    assert known.limit(spark.controller.full_share) is None
    spark.run(lambda t: 500.0 if t < 20 else 8000.0, 60)
    assert 0 < known.limit(spark.controller.full_share) < known.load  # type: ignore[operator]
    hopeless = Spark(controller(), fixed=0.9 * BOUND)
    hopeless.run(lambda t: 500.0, 60)
    assert hopeless.controller.full_share == 0.0
    assert shedding(hopeless.controller).limit(hopeless.controller.full_share) is None


def test_the_floor_holds_for_the_work_of_a_network() -> None:
    spark = Spark(controller("input-uniform", floor=0.5))
    spark.run(lambda t: 500.0 if t < 20 else 8000.0, 60)
    assert spark.controller.share == pytest.approx(0.5, abs=0.01)
    assert "even the floor of 50% is more than fits" in spark.controller.plan.reason


def test_fair_goes_by_what_outputs_had_over_the_last_window():
    """The loop tells `fair` the SIC that batches show; an output that lost more before gets more now."""
    made = (
        Builder("two", capacity=1.0).source("s", "x INT", rate=100).source("t", "x INT", rate=100)
        .filter("a", "s", "x > 0", cost=0.01).filter("b", "t", "x > 0", cost=0.01)
        .output("o", "a").output("p", "b").build()
    )  # fmt: skip
    shedding = NetworkShedding(network_policy("fair"), Catalog.of(made), rate=SteadyRate)
    assert shedding.sic == {}
    flows = Flows(
        arrived={"s": 100, "t": 100},
        passed={"s->a": 20, "t->b": 80, "a->o": 20, "b->p": 80},
        left={"a": 20, "b": 80},
        thinned=True,
    )
    shedding.learn(Sample(at=1.0, started=0.0, arrived=200, kept=200, gap=1.0, flows=flows))
    assert shedding.sic == {"o": 0.2, "p": 0.8}
    keeps = {drop.at: drop.keep for drop in shedding.choose(0.5).drops}
    assert keeps["s->a"] > keeps["t->b"]
    assert sum(keeps.values()) / 2 == pytest.approx(0.5, abs=0.01)


def test_a_delay_longer_than_the_source_time_window_is_told():
    made = Builder("one").source("s", "x INT").output("o", "s").build()
    shedding = NetworkShedding(network_policy("fair"), Catalog.of(made), rate=SteadyRate)
    flows = Flows(arrived={"s": 10}, passed={"s->o": 10})
    shedding.learn(Sample(at=10.0, started=5.0, arrived=10, kept=10, gap=5.0, flows=flows))
    assert shedding.sic_too_late is None
    shedding.learn(Sample(at=60.0, started=20.0, arrived=10, kept=10, gap=5.0, flows=flows))
    assert shedding.sic_too_late == 40.0


def test_fair_in_a_closed_loop_leaves_both_outputs_the_same_share_inside_the_bound():
    spark = Spark(controller("fair"))
    spark.run(lambda now: 4000.0 if now > 10 else 500.0, 90)
    settled = [got for start, got in spark.delivered if start > 40]
    means = {name: sum(got[name] for got in settled) / len(settled) for name in ("o", "p")}
    shares = [means["o"] / (4000 * 0.5), means["p"] / (4000 * 0.8)]
    assert shares[0] == pytest.approx(shares[1], rel=0.03)
    assert 0.2 < shares[0] < 0.95
    assert max(late for at, late in spark.latencies if at > 40) < 1.1 * BOUND


def two_sources(**outputs: dict[str, float]) -> Network:
    return (
        Builder("two", capacity=1.0).source("s", "x INT", rate=100).source("t", "x INT", rate=100)
        .filter("a", "s", "x > 0", cost=0.01).filter("b", "t", "x > 0", cost=0.01)
        .output("o", "a", **outputs.get("o", {})).output("p", "b", **outputs.get("p", {})).build()
    )  # fmt: skip


def batch_of_two(o: int, p: int) -> Sample:
    """A batch of which the outputs got so many of 400 rows each."""
    flows = Flows(
        arrived={"s": 400, "t": 400},
        passed={"s->a": o, "t->b": p, "a->o": o, "b->p": p},
        left={"a": o, "b": p},
        thinned=True,
    )
    return Sample(at=2.0, started=0.0, arrived=800, kept=800, gap=2.0, flows=flows)


class Counting(NetworkShedding):
    """It is told what outputs had by somebody else, and counts how often it is asked."""

    asked = 0
    had: Mapping[str, float] = {}

    @property
    def sic(self) -> dict[str, float]:
        return dict(self.had)

    def choose(self, share: float) -> Choice:
        self.asked += 1
        return super().choose(share)


@pytest.mark.parametrize("policy", ["fair", "lsrm-random"])
def test_fair_is_asked_with_every_batch_though_the_load_stays_the_same(policy):
    """DISSP's shedder decides in every interval: who had less so far gets more now, whatever the share is."""
    catalog = Catalog.of(network())
    shedding = Counting(network_policy(policy), catalog, rate=lambda: ArrivalRate(window=BOUND / 2))
    work = CatalogWork(catalog, lambda: catalog.selectivities)
    spark = Spark(Controller(shedding, latency=BOUND, load=lambda query, bound: QueryLoad(bound, work=work)))
    overload = lambda now: 4000.0 if now > 10 else 500.0  # noqa: E731
    spark.run(overload, 90)  # until plans have settled
    before, share = spark.controller.plan, spark.controller.share
    assert before.wanted
    # The same is seen: `fair` is asked, and as its answer is the same, so is the plan.
    asked, batches = shedding.asked, spark.batch
    spark.run(overload, 110)
    assert shedding.asked - asked == (spark.batch - batches if policy == "fair" else 0)
    assert spark.controller.plan.wanted == before.wanted
    shedding.had = {"o": 0.6, "p": 0.4}
    spark.run(overload, 114)
    after = {drop.at: drop.keep for drop in spark.controller.plan.wanted}
    if policy == "lsrm-random":
        assert spark.controller.plan.wanted == before.wanted
    else:
        assert after["m->f"] < 0.95  # `o` had more, and loses behind the box that both share
        assert "m->g" not in after
        assert spark.controller.share == pytest.approx(share, rel=0.03)


def test_with_fair_who_had_least_is_served_first_and_others_have_no_order():
    made = two_sources(p={"weight": 2.0})
    catalog = Catalog.of(made)
    fair = NetworkShedding(network_policy("fair"), catalog, rate=SteadyRate)
    assert fair.needs == {}
    fair.learn(batch_of_two(200, 300))
    assert sorted(fair.needs, key=fair.needs.__getitem__) == ["p", "o"]  # 0.75 at twice the weight is less
    guarded = Catalog.of(two_sources(o={"minimum_sic": 0.6}))
    fair = NetworkShedding(network_policy("fair"), guarded, rate=SteadyRate)
    fair.learn(batch_of_two(200, 100))
    assert sorted(fair.needs, key=fair.needs.__getitem__) == ["o", "p"]  # below its minimum
    other = NetworkShedding(network_policy("lsrm-random"), catalog, rate=SteadyRate)
    other.learn(batch_of_two(200, 300))
    assert other.needs == {}
