"""Plan against simulator: does what a plan promises come true?

On generated networks with joins, unions, sharing, protected rows and outputs by value and by loss, at excess loads
drawn from +10 % to +300 %, every policy plans once, and its drops are carried out on simulated rows from the first
row on. Each row has one output: the percent claimed and delivered, the load that the rows asked for and the limit.
A load is measured at the rates that were drawn: arrivals are even, so that it is the plan that is measured.
Networks of which a plan says that it does not know (a source's rows come to both sides of a join and can meet
themselves; ten in 500) are drawn anew.

What must come out: delivered within 2 points of claimed for 99 % of the outputs; no load more than 1 % above the
limit, where the policy says that it fits. Chance alone moves the load of 100,000 rows by half a percent, and there
are thousands of loads: so each is measured in more and more runs until it is clear on which side of that it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from streamshed.lab.experiments import chart
from streamshed.lab.experiments.registry import Experiment, FigureRow, Progress, spread
from streamshed.network.catalog import Catalog
from streamshed.network.generate import NetworkShape, generate
from streamshed.network.graph import Network
from streamshed.network.value_flow.certainty import UNKNOWN, certainties
from streamshed.policies.registry import NETWORK_POLICIES, network_policy
from streamshed.records import Drop
from streamshed.sim.arrivals import Constant
from streamshed.sim.promise import CLOSE, Delivered, Undropped, carry_out, undropped
from streamshed.sim.scenario import Scenario

NETWORKS = 500
LEAST, MOST = 2.0, 20.0
"""Seconds that are simulated: until `ARRIVED` rows came, and `ROWS` for the smallest output, within these."""
ROWS, ARRIVED = 8_000, 60_000
INTERVALS = 2
"""Of each run. Few, because what joins do between two steps costs the same however many rows there are."""
RUNS, MOST_RUNS = 4, 60
ABOVE, SURE = 0.01, 3.5
"""Load above the limit that is too much, and the standard errors between it and a mean that is believed."""
POLICIES = tuple(name for name in NETWORK_POLICIES if name != "none")
WITHIN = (0.25, 0.5, 1.0, CLOSE, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class PromiseRow:
    """One output under one policy; `claimed` and `delivered` in percent."""

    network: int
    policy: str
    x: float
    """Load above the limit, as a share of it."""
    output: str
    claimed: float
    delivered: float
    load: float
    limit: float
    fits: bool
    """Whether the policy said that the load would fit."""
    certainty: str


def shape(number: int, rng: np.random.Generator) -> NetworkShape:
    """Every kind of network in turn: with joins or without, shared or not, protected or not."""
    mix = {"filter": 5.0, "union": 2.0, "map": 1.0}
    if number % 2:
        mix["join"] = 1.5
    return NetworkShape(
        queries=int(rng.integers(2, 5)),
        boxes=int(rng.integers(8, 19)),
        mix=mix,
        shared=int(rng.integers(1, 3)) if number % 4 >= 2 else 0,
        selectivity=(0.4, 1.0),
        skew=float(rng.uniform(0, 1.5)),
        rates=(0.5, 2.0),
        protect=1.0 if number % 3 == 0 else 0.0,
        plain=0.3,
        excess=float(rng.uniform(0.1, 3.0)),
    )


def cases(networks: int, seed: int) -> Iterator[tuple[int, float, Network]]:
    """Number, excess and network."""
    rng = np.random.default_rng(seed)
    for number in range(networks):
        made = shape(number, rng)
        network = generate(made, seed=int(rng.integers(1 << 30)))
        while any(each.kind == UNKNOWN for each in certainties(Catalog.of(network)).values()):
            network = generate(made, seed=int(rng.integers(1 << 30)))  # a row could meet itself in a join
        yield number, made.excess, network


class Trials:
    """A network's rows, drawn anew for each run, the same for all policies."""

    def __init__(self, network: Network, number: int) -> None:
        self._network, self._number = network, number
        catalog = Catalog.of(network)
        rates = catalog.arc_rates
        least = min(rates[on] for output in network.outputs for on in network.arcs_into(output.name))
        long = max(ROWS / least if least > 0 else MOST, ARRIVED / sum(catalog.rates.values()))
        self._seconds = min(MOST, max(LEAST, long))
        self._runs: list[tuple[Scenario, Undropped]] = []

    def run(self, index: int) -> tuple[Scenario, Undropped]:
        if index == len(self._runs):
            seed = self._number + 1 + index * (1 << 20)
            drawn = Scenario.of(self._network, seconds=self._seconds, seed=seed, process=Constant)
            scenario = replace(drawn, interval=self._seconds / INTERVALS)
            self._runs.append((scenario, undropped(scenario)))
        return self._runs[index]

    def carry_out(self, drops: Sequence[Drop], limit: float | None) -> Delivered:
        """What drops do, in the mean of as many runs as it takes to tell the load from one above the limit.

        limit: None if the load is not to fit anyway, and one run is enough
        """
        done: list[Delivered] = []
        while len(done) < MOST_RUNS:
            scenario, whole = self.run(len(done))
            done.append(carry_out(scenario, drops, whole))
            if limit is None:
                break
            loads = np.array([each.load for each in done])
            if len(done) >= RUNS:
                error = float(loads.std(ddof=1)) / np.sqrt(len(done))
                if abs(float(loads.mean()) - (1 + ABOVE) * limit) > SURE * error:
                    break
        percent = {name: float(np.mean([each.percent[name] for each in done])) for name in done[0].percent}
        return Delivered(percent, done[0].value, float(np.mean([each.load for each in done])))


def compare(number: int, x: float, network: Network, policies: Sequence[str]) -> list[PromiseRow]:
    """A network under all policies, on the same rows."""
    catalog, trials = Catalog.of(network), Trials(network, number)
    rows = []
    for policy in policies:
        decision = network_policy(policy, number).planner(catalog).decide()
        if decision.row is None:
            continue
        made = trials.carry_out(decision.drops, decision.limit if decision.feasible else None)
        rows += [
            PromiseRow(
                number,
                policy,
                round(x, 4),
                name,
                round(percent, 4),
                round(made.percent[name], 4),
                round(made.load, 6),
                decision.limit,
                decision.feasible,
                decision.certainty[name].kind,
            )
            for name, percent in decision.row.delivery.items()
        ]
    return rows


def measure(
    runs: int, seed: int, progress: Progress, *, networks: int = NETWORKS, policies: Sequence[str] = POLICIES
) -> list[PromiseRow]:
    rows: list[PromiseRow] = []
    for run in range(runs):
        for number, x, network in cases(networks, seed + run):
            progress(run * networks + number, runs * networks, f"network {number}")
            rows += compare(run * networks + number, x, network, policies)
    progress(runs * networks, runs * networks, "done")
    return rows


def within(rows: Sequence[PromiseRow], points: float) -> float:
    """Percent of the outputs that got what was claimed, but for so many points."""
    return 100 * float(np.mean([abs(row.claimed - row.delivered) <= points for row in rows]))


def worst_load(rows: Sequence[PromiseRow]) -> float:
    """The largest load over its limit, of plans that were said to fit."""
    return max(row.load / row.limit for row in rows if row.fits)


def draw(rows: Sequence[PromiseRow], path: Path) -> None:
    policies = list(dict.fromkeys(row.policy for row in rows))
    points: list[FigureRow] = []
    for policy in policies:
        mine = [row for row in rows if row.policy == policy]
        points += [spread(limit, "", policy, [within(mine, limit)]) for limit in WITHIN]
    chart.lines(
        points,
        path,
        chart.Labels(
            title="Claimed and delivered",
            x="points of percent between them, at most",
            y="percent of the outputs",
            note=f"{len({row.network for row in rows})} networks",
        ),
        by=lambda row: row.algorithm,
    )


EXPERIMENT = Experiment("promise", "Plans against the simulator", "what a plan claims", 1, measure, draw)
