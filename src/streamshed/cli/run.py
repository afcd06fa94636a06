"""The commands that run networks on Spark: `run` and `calibrate`."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from streamshed.cli.bindings import bound_to_places
from streamshed.cli.screen import plain_table, screen, shown
from streamshed.durations import seconds
from streamshed.errors import EnvironmentProblem, InvalidArgument, StreamshedError
from streamshed.network.graph import Box, Network, Output, Source
from streamshed.network.spec import yaml as spec
from streamshed.policies.registry import NETWORK_POLICIES, network_policy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streamshed.spark.network.calibrate import Measured
    from streamshed.spark.network.run import RunningNetwork

_POLICIES = ", ".join(NETWORK_POLICIES)
_screen = screen()

Master = Annotated[str, typer.Option(help="Spark's master.")]
Conf = Annotated[
    list[str] | None, typer.Option(metavar="KEY=VALUE", help="A setting for Spark; may be given several times.")
]
Packages = Annotated[
    str | None,
    typer.Option(
        help="Packages that Spark fetches, such as connectors: group:artifact:version, with commas between."
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands to an application."""
    app.command()(run)
    app.command()(calibrate)


def run(
    network: Annotated[
        Path,
        typer.Argument(metavar="SPEC", help="A network as YAML, with `read` and `write`, or as XML (.xml)."),
    ],
    read: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FORMAT:PATH",
            help="Where the rows of a source come from: json, csv, parquet, orc or text, and a folder. "
            "Once for each source; goes before the spec's `read`.",
        ),
    ] = None,
    write: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FORMAT:PATH",
            help="Where the rows of an output go: json, csv, parquet or orc, and a folder; or NAME=console or "
            "NAME=noop. Goes before the spec's `write`.",
        ),
    ] = None,
    policy: Annotated[str, typer.Option(help=f"Who decides what to drop: {_POLICIES}.")] = "lsrm-semantic",
    mode: Annotated[
        str, typer.Option(help="enforce, dry-run (drop nothing, say what would be dropped) or off.")
    ] = "enforce",
    latency: Annotated[
        str, typer.Option(help="The bound to keep, from a row's arrival to its commit.")
    ] = "4 seconds",
    expired: Annotated[
        str,
        typer.Option(
            help="keep or drop: what becomes of rows that were older than the bound when their batch began."
        ),
    ] = "keep",
    checkpoint: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="Where it goes on from, the next time. Default: beside SPEC, with the ending .checkpoint "
            "(triage.yaml: triage.checkpoint).",
        ),
    ] = None,
    trigger: Annotated[str, typer.Option(help="Time between batches; 0: one after the other.")] = "0",
    once: Annotated[bool, typer.Option("--once", help="Process what is there, then stop.")] = False,
    length: Annotated[float, typer.Option("--seconds", help="Stop after so long; 0: never.")] = 0.0,
    master: Master = "local[*]",
    conf: Conf = None,
    packages: Packages = None,
    as_json: Annotated[bool, typer.Option("--json", help="No table; print the report at the end.")] = False,
) -> None:
    """Run a network on Spark, and shed by policy while it runs. Ctrl-C stops it; it goes on where it stopped."""
    import streamshed as ss
    from streamshed.spark.arguments import check_mode
    from streamshed.spark.network.prepare import check_before_spark, check_expired, with_timestamps

    # All that can be found out before Spark starts, which takes seconds.
    made = bound_to_places(spec.load(network), read or (), write or ())
    bound = seconds(latency, "--latency")
    network_policy(policy)
    wanted = check_mode(mode)
    check_expired(with_timestamps(made), expired)
    how = _trigger(trigger, once)
    settings = spark_settings(conf, packages)
    check_before_spark(made, local=_local_files(master, settings))
    folder = _folder(checkpoint, network)
    spark = _session(made.name, master, settings)
    running = ss.run(
        spark, made, policy=policy, mode=wanted, latency=bound, expired=expired, state=folder, trigger=how
    )
    try:
        _watch(running, length, quiet=as_json)
    except KeyboardInterrupt:
        if not as_json:
            _screen.print("stopping …")
    finally:
        running.stop()
    failed = running.failure()
    if as_json:
        print(running.report().to_json())
    else:
        _screen.print(Group(*_head(running), Text(), running.report()))
    if failed is not None:
        raise failed


def _trigger(interval: str, once: bool) -> dict[str, Any]:
    """What `--trigger` and `--once` ask of Spark."""
    zero = re.fullmatch(r"\s*0+(\.0*)?\s*[a-z]*\s*", interval, re.IGNORECASE)
    length = 0.0 if zero else seconds(interval, "--trigger")
    if once and length:
        raise InvalidArgument(
            "--once has no time between batches", got=f"--trigger {interval!r}", hint="one of them"
        )
    if once:
        return {"availableNow": True}
    return {"processingTime": f"{length * 1000:.0f} milliseconds"} if length else {}


def spark_settings(conf: Sequence[str] | None, packages: str | None) -> dict[str, str]:
    """The settings that `--conf` and `--packages` ask for.

    >>> spark_settings(["spark.sql.shuffle.partitions=4"], "org.example:connector_2.13:1.0")
    {'spark.sql.shuffle.partitions': '4', 'spark.jars.packages': 'org.example:connector_2.13:1.0'}
    """
    settings: dict[str, str] = {}
    for setting in conf or ():
        key, equals, value = setting.partition("=")
        if not equals or not key.strip().startswith("spark."):
            raise InvalidArgument(
                "--conf needs a setting of Spark and its value",
                got=repr(setting),
                hint="such as --conf spark.sql.shuffle.partitions=4",
            )
        settings[key.strip()] = value.strip()
    if packages is not None:
        names = [name.strip() for name in packages.split(",") if name.strip()]
        wrong = [name for name in names if len(name.split(":")) != 3 or not all(name.split(":"))]
        if wrong or not names:
            raise InvalidArgument(
                "--packages needs group:artifact:version, with commas between",
                got=repr(", ".join(wrong) or packages),
                hint="such as --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0",
            )
        before = settings.get("spark.jars.packages")
        settings["spark.jars.packages"] = ",".join([*([before] if before else []), *names])
    return settings


def _local_files(master: str, settings: dict[str, str]) -> bool:
    """Whether a path without a scheme is surely one of this machine."""
    elsewhere = "HADOOP_CONF_DIR" in os.environ or any("defaultFS" in key for key in settings)
    return master.startswith("local") and not elsewhere


def _folder(checkpoint: str | None, network: Path) -> str:
    if checkpoint is None:
        return str(network.with_name(f"{network.stem}.checkpoint").absolute())
    return checkpoint if re.match(r"[a-zA-Z][\w+.-]+:", checkpoint) else str(Path(checkpoint).absolute())


def _session(name: str, master: str, settings: dict[str, str]) -> SparkSession:
    from streamshed.spark.network.prepare import first_line
    from streamshed.spark.session import local_session

    try:
        return local_session(name, master, **({"spark.sql.adaptive.enabled": "false"} | settings))
    except StreamshedError:
        raise
    except Exception as error:
        told = {"spark.master": master} | settings
        raise EnvironmentProblem(
            "Spark did not start",
            got=first_line(error),
            hint="Spark's own words are above; it was asked for "
            + ", ".join(f"{key}={value}" for key, value in told.items()),
        ) from error


def _watch(running: RunningNetwork, length: float, *, quiet: bool) -> None:
    end = time.monotonic() + length if length else float("inf")

    def goes_on() -> bool:
        return time.monotonic() < end and any(query.isActive for query in running.queries.values())

    # A pipe would get every state of a live table one below the other.
    if quiet or not _screen.is_terminal:
        while goes_on():
            time.sleep(0.2)
        return
    # The last state is printed when all has stopped.
    with Live(_tables(running), console=_screen, refresh_per_second=2, transient=True) as live:
        while goes_on():
            time.sleep(0.5)
            live.update(_tables(running))


def load_text(load: float, limit: float | None) -> str:
    """The load and what fits, for people.

    >>> for limit in (0.9, None, 0.0):
    ...     print(load_text(0.576, limit))
    load 0.576 of 0.9 core-s/s
    load 0.576 core-s/s, limit not known yet
    load 0.576 core-s/s, no row fits into the bound
    """
    if limit is None:
        return f"load {load:.3g} core-s/s, limit not known yet"
    if limit <= 1e-6 * load:
        return f"load {load:.3g} core-s/s, no row fits into the bound"
    return f"load {load:.3g} of {limit:.3g} core-s/s"


def utility_at(output: Output, percent: float, by_loss: float, latency: float | None) -> float:
    """What an output's rows are worth to it, by how many came and by how late; as the demo and the benches say.

    `by_loss` is what the loss graph, given or derived, makes of the percent delivered. Where the output itself
    gives a loss graph, a row that comes late counts for so much of a row; else its worth shrinks.
    """
    if output.qos.latency is None or latency is None:
        return by_loss
    in_time = output.qos.latency(latency)
    if output.qos.loss is not None and output.qos.value is None:
        return output.qos.loss(percent * in_time)
    return by_loss * in_time


def _head(running: RunningNetwork) -> list[Any]:
    """What runs, how it fares, and why."""
    report = running.report()
    head = Text(
        f"{running.network.name} · {running.policy} · {running.mode.value} · bound {running.latency:g} s · "
        f"{load_text(running.load, running.limit)} · "
        f"latency {report.latency_last:.2f} s now, {report.latency_worst:.2f} s at most · "
        f"{report.batches} batches",
        style="bold",
    )
    return [head, Text(running.plan.reason, style="dim")]


def _tables(running: RunningNetwork) -> Group:
    """What happens now: rates, the drops in force, the latencies of the newest batches."""
    report, plan = running.report(), running.plan
    sources = plain_table("source", "rows/s", "arrived")
    for name, rate in running.rates.items():
        came = report.by_source[name].arrived if name in report.by_source else 0
        sources.add_row(shown(name), f"{rate:,.0f}", f"{came:,}")
    drops = plain_table("drop at", "keep now", "reached", "shed", "where", text=("where",))
    for name, rows in report.by_arc.items():
        now = [drop for drop in plan.drops if drop.at == name]
        if now or rows.shed:
            keep = ", ".join(f"{drop.keep:.2f}" for drop in now)
            where = ", ".join(drop.where or "any row" for drop in now) if any(drop.where for drop in now) else ""
            drops.add_row(shown(name), keep, f"{rows.arrived:,}", f"{rows.shed:,}", shown(where))
    outputs = plain_table("output", "delivered", "of", "%", "latency", "utility")
    latencies = running.latencies
    for output in running.network.outputs:
        name = output.name
        if name not in report.by_output:
            continue
        counts, late = report.by_output[name], latencies.get(name)
        outputs.add_row(
            shown(name), f"{counts.delivered:,}", f"{counts.expected:,.0f}", f"{counts.percent:.1f}",
            "" if late is None else f"{late:.2f} s",
            f"{utility_at(output, counts.percent, running.utility(name), late):.3f}",
        )  # fmt: skip
    parts = _head(running)
    for table in (sources, drops, outputs):
        if table.row_count:
            parts += [Text(), table]
    return Group(*parts)


def calibrate(
    network: Annotated[Path, typer.Argument(metavar="SPEC", help="A network as YAML, or as XML (.xml).")],
    sample: Annotated[
        list[str],
        typer.Option(help="Rows to measure on: PATH, or SOURCE=PATH for each, in the format of its `read`."),
    ],
    out: Annotated[Path | None, typer.Option(help="Write the spec with what was measured here.")] = None,
    copies: Annotated[int, typer.Option(help="Take each sample so many times.")] = 1,
    master: Master = "local[*]",
    conf: Conf = None,
    packages: Packages = None,
) -> None:
    """Measure what each box costs on this machine, and how many rows it passes.

    The selectivities of joins and windows are left as the spec has them: they grow with the rows in a window, and
    a sample says little of that. So is all of a box that no row of the sample reaches.
    """
    from streamshed.spark.network.calibrate import calibrate as measure
    from streamshed.spark.network.calibrate import with_costs
    from streamshed.spark.network.prepare import check_local_path, read_sample, stamped, with_timestamps

    made = spec.load(network)
    settings = spark_settings(conf, packages)
    paths = _samples(made, sample)
    for name, path in paths.items():
        if _local_files(master, settings) and not check_local_path(path):
            raise InvalidArgument(f"no sample for {name!r}: there is no such file or folder", got=path)
    if copies < 1:
        raise InvalidArgument("--copies must be 1 or more", got=copies)
    if out is not None and not out.absolute().parent.is_dir():
        raise InvalidArgument("--out names a folder that does not exist", got=str(out.absolute().parent))
    spark = _session("calibrate", master, settings)
    rows = {
        source.name: stamped(made, source, read_sample(spark, source, paths[source.name]))
        for source in made.sources
    }
    found: dict[str, Measured] = {}
    with Console(stderr=True).status("calibrating") as status:
        for one in measure(spark, with_timestamps(made), rows, copies=copies):
            status.update(f"calibrating: {one.box}")
            found[one.box] = one
    # What is shown is what is written: both come from the same network.
    after = with_costs(made, found)
    _screen.print(calibration_table(made, after, found))
    for line in left_alone(after, found):
        _screen.print(Text(line))
    if out is not None:
        out.write_text(spec.dump(after), encoding="utf-8")
        _screen.print(Text(f"written: {out}"))


def _samples(network: Network, given: Sequence[str]) -> dict[str, str]:
    """The path of each source's sample, from PATH or SOURCE=PATH."""
    names = [source.name for source in network.sources]
    paths: dict[str, str] = {}
    for sample in given:
        name, equals, path = sample.partition("=")
        if equals and name not in names:
            raise InvalidArgument("the network has no such source", got=repr(name), hint=", ".join(names))
        paths[name if equals else ""] = path if equals else name
    missing = [name for name in names if name not in paths and "" not in paths]
    if missing:
        raise InvalidArgument("a source without a sample", got=", ".join(missing), hint="--sample SOURCE=PATH")
    return {name: paths.get(name, paths.get("", "")) for name in names}


def calibration_table(before: Network, after: Network, found: dict[str, Measured]) -> Table:
    """Costs and selectivities as they were and as they are written."""
    table = plain_table("box", "rows", "cost (s/row)", "was", "selectivity", "was")
    table.title = f"calibrate {before.name}"
    for name, measured in found.items():
        old, new = before.nodes[name], after.nodes[name]
        if isinstance(old, Source) and isinstance(new, Source):
            costs = [(node.parse or {}).get("cost", 0.0) for node in (new, old)]
            table.add_row(f"{name} (parse)", f"{measured.rows:,}", *(f"{cost:.3g}" for cost in costs))
        elif isinstance(old, Box) and isinstance(new, Box):
            table.add_row(
                name, f"{measured.rows:,}", f"{new.cost:.3g}", f"{old.cost:.3g}", f"{new.selectivity:.4g}",
                f"{old.selectivity:.4g}",
            )  # fmt: skip
    return table


def left_alone(after: Network, found: dict[str, Measured]) -> list[str]:
    """A line for each thing that was measured, or could not be, and is not in the result."""
    lines = []
    for name, measured in found.items():
        node = after.nodes[name]
        if not isinstance(node, Box):
            continue
        if not measured.rows:
            lines.append(f"{name}: no row of the sample reaches it; left as it was")
        elif measured.selectivity != node.selectivity:
            lines.append(
                f"{name}: selectivity left at {node.selectivity:.4g}; the sample has {measured.selectivity:.4g}, "
                f"which says little of a {node.op} of other rates"
            )
    return lines
