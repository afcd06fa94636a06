"""The command `check`: what a plan promises, held against what its drops do to simulated rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from streamshed.cli.options import Excess, Overload, rate_factor
from streamshed.cli.screen import plain_table, screen, shown
from streamshed.network.catalog import Catalog
from streamshed.network.spec import yaml as spec
from streamshed.network.value_flow.cells import loss_graphs
from streamshed.policies.registry import NETWORK_POLICIES, network_policy
from streamshed.sim.arrivals import Constant
from streamshed.sim.scenario import Scenario


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command()(check)


def check(
    network: Annotated[Path, typer.Argument(metavar="SPEC", help="A network, as YAML or DISSP's XML.")],
    policy: Annotated[str, typer.Option(help="One of " + ", ".join(NETWORK_POLICIES) + ".")] = "lsrm-random",
    overload: Overload = None,
    excess: Excess = None,
    seconds: Annotated[float, typer.Option(help="How long rows arrive, in virtual time.")] = 30.0,
    seed: Annotated[int, typer.Option(help="The same seed gives the same result.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Does what a plan claims come true? Plans once, carries the drops out on simulated rows, and compares.

    Every output: claimed and delivered percent and utility, the difference, and where it comes from.
    """
    # Its compiled loop takes a second to load, which no other command needs.
    from streamshed.sim.promise import CLOSE, carry_out, cause, undropped

    made = spec.load(network)
    catalog = Catalog.of(made)
    factor = rate_factor(catalog, excess=excess, overload=overload)
    catalog = catalog.at({name: rate * factor for name, rate in catalog.rates.items()})
    decision = network_policy(policy, seed).planner(catalog).decide()
    scenario = Scenario.of(made, overload=factor, seconds=seconds, seed=seed, process=Constant)
    whole = undropped(scenario)
    done = carry_out(scenario, decision.drops, whole)
    names = [output.name for output in made.outputs]
    by_value = {output.name for output in made.outputs if output.qos.value is not None}
    graphs = loss_graphs(catalog)
    semantic = any(drop.where is not None for drop in decision.drops) and policy == "lsrm-semantic"
    row = decision.row
    claimed = dict.fromkeys(names, 100.0) if row is None else row.delivery
    promised = dict.fromkeys(names, 1.0) if row is None else row.utility
    had = {
        name: done.value[name] if semantic and name in by_value else graphs[name](done.percent[name])
        for name in names
    }
    off = {name: done.percent[name] - claimed[name] for name in names}
    planned = decision.load - (0.0 if row is None else row.saved(catalog.rates))
    found = {
        name: {
            "claimed": claimed[name],
            "delivered": done.percent[name],
            "utility_claimed": promised[name],
            "utility": had[name],
            "is": decision.certainty[name].kind if name in decision.certainty else None,
            "why": cause(scenario, decision, whole, name)
            if abs(claimed[name] - done.percent[name]) > CLOSE
            else "",
        }
        for name in names
    }
    if as_json:
        typer.echo(
            json.dumps(
                {
                    "policy": decision.policy,
                    "limit": decision.limit,
                    "load_claimed": planned,
                    "load": done.load,
                    "outputs": found,
                }
            )
        )
        return
    console = screen()
    console.print(f"{decision.policy}: {decision.reason}", highlight=False, markup=False)
    table = plain_table("output", "claimed", "delivered", "off", "utility", "had", "why", text=("why",))
    for name, each in found.items():
        table.add_row(
            shown(name),
            f"{claimed[name]:.1f} %",
            f"{done.percent[name]:.1f} %",
            f"{off[name]:+.1f}",
            f"{promised[name]:.3f}",
            f"{had[name]:.3f}",
            shown(str(each["why"])),
        )
    console.print(table)
    console.print(
        f"load {done.load:.3g}, {planned:.3g} claimed, against {decision.limit:.3g}: "
        f"{done.load / decision.limit - 1:+.1%} of the limit",
        highlight=False,
    )
