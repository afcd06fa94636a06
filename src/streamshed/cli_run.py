"""The commands that run networks on Spark: `run` and `calibrate`."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from streamshed.durations import seconds
from streamshed.errors import InvalidArgument
from streamshed.network import spec
from streamshed.network.graph import Box, Source
from streamshed.policies.registry import BASELINES, NETWORK_POLICIES, live_policy

if TYPE_CHECKING:
    from streamshed.spark.runtime import RunningNetwork

_POLICIES = ", ".join([*BASELINES, *NETWORK_POLICIES])
_screen = Console()


def register(app: typer.Typer) -> None:
    """Add the commands to an application."""
    app.command()(run)
    app.command()(calibrate)


def run(
    network: Annotated[Path, typer.Argument(metavar="SPEC", help="A network as YAML, with `read` and `write`.")],
    policy: Annotated[str, typer.Option(help=f"Who decides what to drop: {_POLICIES}.")] = "lsrm-semantic",
    mode: Annotated[str, typer.Option(help="enforce, dry-run or off.")] = "enforce",
    latency: Annotated[str, typer.Option(help="The bound to keep.")] = "4 seconds",
    checkpoint: Annotated[
        Path | None, typer.Option(help="Where to go on from, the next time. Default: SPEC without its ending.")
    ] = None,
    trigger: Annotated[str, typer.Option(help="Time between batches; 0: one after the other.")] = "0",
    once: Annotated[bool, typer.Option("--once", help="Process what is there, then stop.")] = False,
    length: Annotated[float, typer.Option("--seconds", help="Stop after so long; 0: never.")] = 0.0,
    master: Annotated[str, typer.Option(help="Spark's master.")] = "local[*]",
    as_json: Annotated[bool, typer.Option("--json", help="No table; print the report at the end.")] = False,
) -> None:
    """Run a network on Spark, and shed by policy while it runs. Ctrl-C stops it; it goes on where it stopped."""
    import streamshed as ss
    from streamshed.spark.session import local_session

    made = spec.load(network)
    bound = seconds(latency, "--latency")
    live_policy(policy)
    folder = checkpoint or network.with_suffix("").with_name(f"{network.stem}.checkpoint")
    spark = local_session(made.name, master, **{"spark.sql.adaptive.enabled": "false"})
    how: dict[str, Any] = {}
    if once:
        how = {"availableNow": True}
    elif trigger.strip() not in ("0", "0 s"):
        how = {"processingTime": f"{seconds(trigger, '--trigger') * 1000:.0f} milliseconds"}
    running = ss.run(
        spark, made, policy=policy, mode=mode, latency=bound, checkpoint=str(folder.absolute()), trigger=how
    )
    try:
        _watch(running, length, quiet=as_json)
    except KeyboardInterrupt:
        _screen.print("stopping …")
    finally:
        running.stop()
    failed = running.failure()
    if as_json:
        print(json.dumps(running.report().as_json()))
    else:
        _screen.print(_tables(running))
    spark.stop()
    if failed is not None:
        raise failed


def _watch(running: RunningNetwork, length: float, *, quiet: bool) -> None:
    end = time.monotonic() + length if length else float("inf")

    def goes_on() -> bool:
        return time.monotonic() < end and any(query.isActive for query in running.queries.values())

    if quiet:
        while goes_on():
            time.sleep(0.2)
        return
    with Live(_tables(running), console=_screen, refresh_per_second=2) as live:
        while goes_on():
            time.sleep(0.5)
            live.update(_tables(running))


def _tables(running: RunningNetwork) -> Group:
    report, plan, controller = running.report(), running.plan, running.controller
    limit = controller.limit
    head = Text(
        f"{running.network.name} · {running.policy} · {running.mode.value} · bound {running.latency:g} s · "
        f"load {controller.load:.3g} of {'?' if limit is None else f'{limit:.3g}'} core-s/s · "
        f"latency {report.latency_last:.2f} s now, {report.latency_max:.2f} s at most · {report.batches} batches",
        style="bold",
    )
    sources = Table("source", "rows/s", "arrived", box=None)
    for name, rate in controller.rates.items():
        sources.add_row(name, f"{rate:,.0f}", f"{report.arrived.get(name, 0):,}")
    drops = Table("drop at", "keep now", "where", "reached", "shed", box=None)
    now = {drop.at: drop for drop in plan.drops}
    for name, reached in report.reached.items():
        drop = now.get(name)
        if drop is not None or report.shed[name]:
            keep, where = ("", "") if drop is None else (f"{drop.keep:.2f}", drop.where or "")
            drops.add_row(name, keep, where, f"{reached:,}", f"{report.shed[name]:,}")
    outputs = Table("output", "delivered", "of", "%", "utility", box=None)
    for name, rows in report.delivered.items():
        outputs.add_row(
            name, f"{rows:,}", f"{report.expected.get(name, 0):,.0f}", f"{report.percent[name]:.1f}",
            f"{running.utility(name):.3f}",
        )  # fmt: skip
    parts: list[Any] = [head, Text(plan.reason, style="dim"), sources]
    return Group(*parts, *([drops] if drops.rows else []), outputs)


def calibrate(
    network: Annotated[Path, typer.Argument(metavar="SPEC", help="A network as YAML.")],
    sample: Annotated[
        list[str],
        typer.Option(help="Rows to measure on: PATH, or SOURCE=PATH for each, in the format of its `read`."),
    ],
    out: Annotated[Path | None, typer.Option(help="Write the spec with what was measured here.")] = None,
    copies: Annotated[int, typer.Option(help="Take each sample so many times.")] = 1,
    master: Annotated[str, typer.Option(help="Spark's master.")] = "local[*]",
) -> None:
    """Measure what each box costs on this machine, and how many rows it passes."""
    from streamshed.spark.calibrate import calibrate as measure
    from streamshed.spark.calibrate import with_costs
    from streamshed.spark.prepare import read_sample
    from streamshed.spark.session import local_session

    made = spec.load(network)
    parts = [one.partition("=") for one in sample]
    paths = {name if equals else "": path if equals else name for name, equals, path in parts}
    names = [source.name for source in made.sources]
    for name in paths:
        if name and name not in names:
            raise InvalidArgument("the network has no such source", got=repr(name), hint=", ".join(names))
    missing = [name for name in names if name not in paths and "" not in paths]
    if missing:
        raise InvalidArgument("a source without a sample", got=", ".join(missing), hint="--sample SOURCE=PATH")
    spark = local_session("calibrate", master, **{"spark.sql.adaptive.enabled": "false"})
    rows = {
        source.name: read_sample(spark, source, paths.get(source.name, paths.get("", "")))
        for source in made.sources
    }
    table = Table("box", "rows", "cost (s/row)", "was", "selectivity", "was", title=f"calibrate {made.name}")
    found = {}
    with _screen.status("calibrating") as status:
        for one in measure(spark, made, rows, copies=copies):
            status.update(f"calibrating: {one.box}")
            found[one.box] = one
            node = made.nodes[one.box]
            if isinstance(node, Source):
                table.add_row(
                    f"{one.box} (parse)", f"{one.rows:,}", f"{one.cost:.3g}",
                    f"{(node.parse or {}).get('cost', 0.0):.3g}",
                )  # fmt: skip
            elif isinstance(node, Box):
                table.add_row(
                    one.box, f"{one.rows:,}", f"{one.cost:.3g}", f"{node.cost:.3g}", f"{one.selectivity:.3g}",
                    f"{node.selectivity:.3g}",
                )  # fmt: skip
    _screen.print(table)
    if out is not None:
        out.write_text(spec.dump(with_costs(made, found)), encoding="utf-8")
        _screen.print(f"written: [bold]{out}[/]")
    spark.stop()
