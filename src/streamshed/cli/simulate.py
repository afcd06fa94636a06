"""The commands of virtual time: `simulate` and `experiment`."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from streamshed.cli.options import Excess, Overload, rate_factor
from streamshed.cli.screen import plain_table, screen, shown
from streamshed.errors import InvalidArgument
from streamshed.lab.experiments import registry
from streamshed.network.catalog import Catalog
from streamshed.network.spec import yaml as spec
from streamshed.policies.registry import NETWORK_POLICIES, network_policy
from streamshed.sim.arrivals import ArrivalProcess, Bursty, Constant, Poisson
from streamshed.sim.scenario import Scenario

if TYPE_CHECKING:
    from streamshed.sim.simulate import Outcome

_POLICIES = ", ".join(NETWORK_POLICIES)
_ARRIVALS: dict[str, Callable[[float], ArrivalProcess]] = {
    "poisson": Poisson,
    "constant": Constant,
    "bursty": Bursty,
}


def register(app: typer.Typer) -> None:
    """Add the commands to an application."""
    app.command()(simulate)
    app.command()(experiment)


def simulate(
    network: Annotated[Path, typer.Argument(metavar="SPEC", help="A network, as YAML or DISSP's XML.")],
    policy: Annotated[str, typer.Option(help=f"Who decides what to drop: {_POLICIES}.")],
    overload: Overload = None,
    excess: Excess = None,
    seconds: Annotated[float, typer.Option(help="How long rows arrive, in virtual time.")] = 60.0,
    seed: Annotated[int, typer.Option(help="The same seed gives the same result.")] = 1,
    arrivals: Annotated[str, typer.Option(help="How they arrive: poisson, constant, bursty.")] = "poisson",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Run a network in virtual time under a policy, and measure what shedding cost."""
    # Its compiled loop takes a second to load, which no other command needs.
    from streamshed.sim.simulate import simulate as run_simulation

    if arrivals not in _ARRIVALS:
        raise InvalidArgument("no such arrivals", got=repr(arrivals), hint=", ".join(_ARRIVALS))
    made = spec.load(network)
    chosen = network_policy(policy, seed)
    factor = rate_factor(Catalog.of(made), excess=excess, overload=overload)
    scenario = Scenario.of(made, overload=factor, seconds=seconds, seed=seed, process=_ARRIVALS[arrivals])
    outcome = run_simulation(scenario, chosen)
    if as_json:
        typer.echo(json.dumps(outcome.as_json(), indent=1))
    else:
        _show(outcome)


def experiment(
    name: Annotated[str, typer.Argument(help="An experiment, or `list`.")],
    runs: Annotated[int | None, typer.Option(help="How many seeds; each experiment has its own default.")] = None,
    seed: Annotated[int, typer.Option(help="The first seed.")] = 1,
    out: Annotated[Path, typer.Option(help="Where NAME.json and NAME.png go.")] = Path("out"),
) -> None:
    """Make a figure again: writes its numbers and its picture, and prints the table."""
    console = screen()
    if name == "list":
        table = plain_table("name", "what it shows", "reproduces", text=("what it shows", "reproduces"))
        for each in map(registry.find, registry.names()):
            table.add_row(each.name, each.title, each.figure)
        console.print(table)
        return
    found = registry.find(name)
    columns = (TextColumn("{task.description:38}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(name)

        def progress(done: int, total: int, what: str) -> None:
            bar.update(task, completed=done, total=total, description=what)

        outcome = registry.perform(found, runs=runs, seed=seed, progress=progress)
    data, picture = outcome.write(out, found.draw)
    console.print(_table(outcome))
    console.print(f"{found.figure}, {outcome.runs} runs from seed {outcome.seed}: {data}, {picture}")


def _show(outcome: Outcome) -> None:
    table = plain_table(
        "output", "expected", "delivered", "tuple utility", "value utility", "SIC", "latency", "p99"
    )
    for name, quality in outcome.outputs.items():
        table.add_row(
            shown(name),
            str(quality.expected),
            str(quality.delivered),
            f"{quality.tuple_utility:.3f}",
            f"{quality.value_utility:.3f}",
            f"{quality.sic:.3f}",
            _seconds(quality.latency_mean),
            _seconds(quality.latency_p99),
        )
    console = screen()
    console.print(
        f"{outcome.policy}: load {outcome.load:.3g} against {outcome.limit:.3g}; "
        f"{outcome.dropped} dropped of {outcome.arrived}; Jain's index {outcome.jain:.3f}"
    )
    console.print(table)
    for name, box in outcome.load_aware.items():
        console.print(
            f"{shown(name)} sheds by itself: {box.served} rows served; "
            f"queuing latency {_seconds(box.queue_mean)}, "
            f"{_seconds(box.queue_worst)} at worst; completion {_seconds(box.completion_mean)}, "
            f"{_seconds(box.completion_worst)} at worst"
        )


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f} s"


def _table(outcome: registry.Figure) -> Table:
    """A line for each row; the columns are whatever fields the experiment's rows have."""
    names = [field.name for field in fields(outcome.rows[0])]
    table = plain_table(*(name.replace("_", " ") for name in names))
    for row in outcome.rows:
        table.add_row(*(_cell(name, getattr(row, name)) for name in names))
    return table


def _cell(name: str, value: object) -> str:
    if not isinstance(value, float):
        return "-" if value is None else str(value)
    return (
        f"{value:.4g}" if name == "x" else f"{value:.2f}" if name.startswith(("loss", "queue")) else f"{value:.3f}"
    )
