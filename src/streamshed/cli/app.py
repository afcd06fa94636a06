"""The command line."""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from streamshed.cli import history, plan, promised, run, simulate
from streamshed.cli.screen import screen
from streamshed.durations import seconds
from streamshed.errors import InvalidArgument, StreamshedError
from streamshed.extras import need
from streamshed.network.nodes import visible

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)
# In the order in which a new user needs them.
run.register(app)
history.register(app)
plan.register(app)
promised.register(app)
simulate.register(app)
_screen = screen()
_aside = Console(stderr=True)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"streamshed {version('streamshed')}")
        raise typer.Exit


@app.callback()
def streamshed(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Load shedding for Spark Structured Streaming."""


@app.command()
def demo(
    latency: Annotated[str, typer.Option(help="The bound to keep.")] = "6 seconds",
    out: Annotated[Path, typer.Option(help="Where to put the picture (and its numbers, as .json).")] = Path(
        "demo.png"
    ),
    drop_in: Annotated[
        bool,
        typer.Option(
            "--drop-in", help="One job and one line of shedding at three times the capacity, no network."
        ),
    ] = False,
    overload: Annotated[
        float | None, typer.Option(min=1.1, help="Times what this machine can process; 2 by default.")
    ] = None,
) -> None:
    """A burst of twice what this machine can process: plain Spark and Streamshed side by side."""
    bound = seconds(latency, "--latency")
    if drop_in and overload is not None:
        raise InvalidArgument(
            "--overload goes with the network", got="--drop-in --overload", hint="leave one of them out"
        )
    need("matplotlib", "lab")
    if not out.absolute().parent.is_dir():
        # The demo takes minutes; a picture with nowhere to go would be found out at its end.
        raise InvalidArgument("--out names a folder that does not exist", got=str(out.absolute().parent))
    if drop_in:
        from streamshed.lab import demo_drop_in

        table = demo_drop_in.summary_table(demo_drop_in.run(_screen, out, bound))
    else:
        from streamshed.lab import demo as network_demo

        table = network_demo.summary_table(
            network_demo.run(_screen, out, bound, overload=overload or network_demo.OVERLOAD)
        )
    _screen.print()
    _screen.print(table)
    _screen.print(Text(f"picture: {out}, numbers: {out.with_suffix('.json')}"))


@app.command()
def bench(
    name: Annotated[str, typer.Argument(help="A benchmark's name, or 'list'.")] = "list",
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Also write numbers and a picture to this folder, where there is one.")
    ] = None,
    bound: Annotated[
        list[str] | None, typer.Option(help="latency: a bound to try, such as 4s; may be given several times.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="latency, fair: how often.")] = 1,
    part: Annotated[
        list[str] | None,
        typer.Option(
            help="overhead: light, stateless, columnar or sic alone; realtime: idle, 2, 4, 8, burst, cold or "
            "picture; may be given several times."
        ),
    ] = None,
) -> None:
    """Measure Streamshed on this machine. Each result is a ratio within one run, or a latency."""
    from streamshed.lab import bench as benches

    if name == "list":
        for each, summary in benches.BENCHES.items():
            _screen.print(f"[bold]{each:<10}[/] {summary}")
        return
    if out is not None:
        need("matplotlib", "lab")
    bounds = [seconds(each, "--bound") for each in bound or ()]
    measure = benches.bench(name, out, bounds, rounds, part or ())
    show = None if as_json else benches.tables(name)
    with _aside.status(f"bench {name}") as status:

        def say(text: str) -> None:
            status.update(f"bench {name} · {text}")

        tables = [] if show is None else show(say)
        result = measure(say) if show is None else {}
    if tables:
        _screen.print(*tables)
        return
    if as_json:
        print(json.dumps(result))
        return
    table = Table(title=f"bench {name}", show_header=False)
    for field, value in result.items():
        if field != "bench":
            table.add_row(field, f"{value:,}" if isinstance(value, (int, float)) else str(value))
    _screen.print(table)


def main() -> None:
    """Run the command line; an error of ours is a message, not a traceback. Spark is stopped on every way out."""
    try:
        try:
            app()
        finally:
            _leave_spark()
    except StreamshedError as error:
        # As it is: brackets in a message are no markup, and a path cut into lines cannot be copied.
        _aside.print(Text.assemble(("error:", "red"), f" {visible(str(error))}"), soft_wrap=True)
        sys.exit(2)


def _leave_spark() -> None:
    # Most commands never load Spark, and must not do so to find out that there is none to stop.
    if "streamshed.spark.session" in sys.modules:
        from streamshed.spark.session import leave_spark

        leave_spark()


if __name__ == "__main__":
    main()
