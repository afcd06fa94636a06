"""The command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from streamshed import cli_network, cli_run, cli_sim
from streamshed.durations import seconds
from streamshed.errors import StreamshedError

app = typer.Typer(
    help="Load shedding for Spark Structured Streaming.", no_args_is_help=True, pretty_exceptions_enable=False
)
cli_network.register(app)
cli_sim.register(app)
cli_run.register(app)
_screen = Console()
_aside = Console(stderr=True)


@app.command()
def demo(
    latency: Annotated[str, typer.Option(help="The bound to keep.")] = "6 seconds",
    out: Annotated[Path, typer.Option(help="Where to put the picture (and its numbers, as .json).")] = Path(
        "demo.png"
    ),
    drop_in: Annotated[
        bool, typer.Option("--drop-in", help="One job and one line of shedding, instead of a network.")
    ] = False,
) -> None:
    """A burst at three times this machine's capacity: plain Spark and Streamshed side by side."""
    bound = seconds(latency, "--latency")
    if drop_in:
        from streamshed import demo_drop_in

        table = demo_drop_in.summary_table(demo_drop_in.run(_screen, out, bound))
    else:
        from streamshed import demo as network_demo

        table = network_demo.summary_table(network_demo.run(_screen, out, bound))
    _screen.print()
    _screen.print(table)
    _screen.print(f"picture: [bold]{out}[/], numbers: [bold]{out.with_suffix('.json')}[/]")


@app.command()
def bench(
    name: Annotated[str, typer.Argument(help="A benchmark's name, or 'list'.")] = "list",
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Also write numbers and a picture to this folder, where there is one.")
    ] = None,
) -> None:
    """Measure Streamshed on this machine. Each result is a ratio within one run, or a latency."""
    from streamshed import bench as benches

    if name == "list":
        for each, summary in benches.BENCHES.items():
            _screen.print(f"[bold]{each:<10}[/] {summary}")
        return
    measure = benches.bench(name, out)
    with _aside.status(f"bench {name}") as status:
        result = measure(lambda text: status.update(f"bench {name} · {text}"))
    if as_json:
        print(json.dumps(result))
        return
    table = Table(title=f"bench {name}", show_header=False)
    for field, value in result.items():
        if field != "bench":
            table.add_row(field, f"{value:,}" if isinstance(value, (int, float)) else str(value))
    _screen.print(table)


def main() -> None:
    """Run the command line; an error of ours is a message, not a traceback."""
    try:
        app()
    except StreamshedError as error:
        _aside.print(f"[red]error:[/] {error}", highlight=False)
        sys.exit(2)


if __name__ == "__main__":
    main()
