"""The commands about networks: `plan`, `network draw`, `network generate`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from streamshed.cli.options import Excess, Overload, rate_factor
from streamshed.cli.screen import screen, shown
from streamshed.errors import InvalidArgument, StreamshedError
from streamshed.network.catalog import Catalog
from streamshed.network.generate import NetworkShape
from streamshed.network.generate import generate as generated
from streamshed.network.graph import Network
from streamshed.network.nodes import visible
from streamshed.network.spec import yaml as spec
from streamshed.policies.contract import Decision
from streamshed.policies.registry import NETWORK_POLICIES, network_policy

network_app = typer.Typer(name="network", help="Draw and generate query networks.", no_args_is_help=True)


@contextmanager
def explained() -> Iterator[None]:
    """An error on purpose becomes its message and exit code 2, not a traceback."""
    try:
        yield
    except StreamshedError as error:
        typer.echo(f"error: {visible(str(error))}", err=True)
        raise typer.Exit(2) from error


def numbers_of(text: str | None, option: str = "--rates") -> dict[str, float]:
    """Numbers by name, from "a=1200,b=50".

    >>> numbers_of("a=1200, b=50")
    {'a': 1200.0, 'b': 50.0}
    """
    found: dict[str, float] = {}
    for part in (text or "").split(",") if text else ():
        name, equals, value = part.partition("=")
        try:
            if not equals:
                raise ValueError
            number = float(value)
        except ValueError:
            raise InvalidArgument(
                f"{option} needs a number for each name", got=repr(part), hint=f"such as {option} a=1200,b=50"
            ) from None
        if name.strip() in found:
            raise InvalidArgument(f"{option} has a name twice", got=repr(text), hint="one number for each name")
        found[name.strip()] = number
    return found


def decide(
    network: Network,
    policy: str,
    *,
    rates: Mapping[str, float] | None = None,
    excess: float | None = None,
    overload: float | None = None,
    seed: int = 0,
) -> Decision:
    """What a policy would do at other rates: see `rate_factor`."""
    catalog = Catalog.of(network)
    if rates:
        catalog = catalog.at(rates)
    factor = rate_factor(catalog, excess=excess, overload=overload)
    catalog = catalog.at({name: rate * factor for name, rate in catalog.rates.items()})
    return network_policy(policy, seed).planner(catalog).decide()


def plan(
    spec_file: Annotated[Path, typer.Argument(metavar="SPEC", help="A network, as YAML or DISSP's XML.")],
    policy: Annotated[str, typer.Option(help="One of " + ", ".join(NETWORK_POLICIES) + ".")] = "lsrm-random",
    rates: Annotated[str | None, typer.Option(help="Rows per second of sources, as a=1200,b=50.")] = None,
    excess: Excess = None,
    overload: Overload = None,
    seed: Annotated[int, typer.Option(help="For policies that draw.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole table as JSON.")] = False,
) -> None:
    """Show what a policy would drop from a network, before anything runs."""
    with explained():
        decision = decide(
            spec.load(spec_file), policy, rates=numbers_of(rates), excess=excess, overload=overload, seed=seed
        )
        if as_json:
            typer.echo(json.dumps(decision.as_json()))
        else:
            show(decision, screen())


def show(decision: Decision, console: Console) -> None:
    """A decision for people."""
    console.print(f"{decision.policy}: {decision.reason}", highlight=False, markup=False)
    row = decision.row
    if row is None:
        return
    drops = Table("arc", "keep", "where", title="drops")
    for drop in decision.drops:
        drops.add_row(shown(drop.at), f"{drop.keep:.1%}", shown(drop.where or "any row"))
    outputs = Table("output", "delivered", "utility", "which is", title="outputs")
    for name, percent in row.delivery.items():
        known = decision.certainty.get(name)
        told = "" if known is None else known.kind + (f" ({known.why})" if known.why else "")
        outputs.add_row(shown(name), f"{percent:.1f} %", f"{row.utility[name]:.3f}", shown(told))
    console.print(drops)
    console.print(outputs)
    if decision.gap:
        console.print(f"at most {decision.gap:.3f} of utility below the best there is", highlight=False)


@network_app.command()
def draw(
    spec_file: Annotated[Path, typer.Argument(metavar="SPEC", help="A network, as YAML or DISSP's XML.")],
    mermaid: Annotated[bool, typer.Option("--mermaid", help="A Mermaid flowchart instead of text.")] = False,
) -> None:
    """Draw a network."""
    with explained():
        typer.echo(visible(spec.load(spec_file).draw("mermaid" if mermaid else "text")))


@network_app.command()
def generate(
    queries: Annotated[int, typer.Option(help="How many queries, each with one output.")] = 5,
    boxes: Annotated[int, typer.Option(help="How many boxes in all.")] = 47,
    shared: Annotated[int, typer.Option(help="How many streams come from a box of an earlier query.")] = 0,
    mix: Annotated[
        str, typer.Option(help="Proportions of the box types: filter, union, join, map.")
    ] = "filter=34,union=13",
    selectivity: Annotated[
        tuple[float, float], typer.Option(help="Bounds of the filters' selectivities.")
    ] = NetworkShape.selectivity,
    costs: Annotated[
        str | None, typer.Option(help="Seconds per row of box types, as filter=4e-5,join=1e-4.")
    ] = None,
    skew: Annotated[float, typer.Option(help="Zipf skew of the utilities.")] = 0.0,
    excess: Annotated[float, typer.Option(help="Load above the limit: 0.5 is +50 %.")] = 0.0,
    seed: Annotated[int, typer.Option(help="The same seed gives the same network.")] = 1,
) -> None:
    """Print a random network as YAML, in the manner of LSRM 5.2. The defaults are the paper's sizes."""
    with explained():
        shape = NetworkShape(
            queries=queries,
            boxes=boxes,
            shared=shared,
            mix=numbers_of(mix, "--mix"),
            selectivity=selectivity,
            skew=skew,
            excess=excess,
        )
        if costs:
            shape = replace(shape, costs={**shape.costs, **numbers_of(costs, "--costs")})
        typer.echo(spec.dump(generated(shape, seed=seed)), nl=False)


def register(app: typer.Typer) -> None:
    """Add these commands to an application."""
    app.command()(plan)
    app.add_typer(network_app)
