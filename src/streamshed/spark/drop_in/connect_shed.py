"""`shed` over Spark Connect: a fixed time budget, in plain SQL.

A client of Spark Connect cannot reach the JVM: no plan can be changed while its query runs, and nobody sees the
metrics of an executed plan. What is left needs neither. A row that comes to the drop later in its batch than the
budget allows is dropped:

    where  clock < (time of planning + budget)

and `observe` counts what came and what passed. There is no controller and no thinning, so the first rows of a
batch are favoured; the clock is looked at for every row, which costs some 0.2 µs; and whether a query only drains
what is there (`availableNow`) is not known: do not shed such a one.
"""

from __future__ import annotations

import itertools
import json
import logging
import weakref
from datetime import timedelta
from typing import Any, ClassVar

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.listener import StreamingQueryListener

from streamshed.durations import seconds
from streamshed.errors import InvalidArgument
from streamshed.quality import Ledger, Report
from streamshed.records import Mode, Plan
from streamshed.spark.arguments import check_arrival, check_budget, check_expired, check_mode, check_protect
from streamshed.spark.handle import Handle
from streamshed.spark.orders.history import KEEP_ALL
from streamshed.spark.watch.plan_counts import Counts
from streamshed.spark.watch.progress import Progress, SampleBuilder

log = logging.getLogger("streamshed")

SHARE = 0.4
"""Of the bound, what a batch is given: a row waits for one batch and then for its own, and a fifth is for what
comes behind the drop."""
_CLOCK = "CAST(reflect('java.lang.System', 'currentTimeMillis') AS BIGINT)"
_DEFAULTS = {
    "key": None,
    "floor": None,
    "max_shed": None,
    "weight": None,
    "sic": None,
    "rotate": None,
    "salt": None,
    "measure": False,
    "state": None,
    "trigger": "micro-batch",
    "classes": None,
    "value": None,
    "cost": None,
    "cost_key": None,
}
_numbers = itertools.count(1)
_handles: weakref.WeakValueDictionary[str, ConnectShedder] = weakref.WeakValueDictionary()


def is_remote(frame: object) -> bool:
    """Whether a DataFrame is one of Spark Connect."""
    return type(frame).__module__.startswith("pyspark.sql.connect")


def connect_shed(
    events: DataFrame,
    latency: str | float | timedelta,
    *,
    arrived: str | None,
    protect: str | Column | None,
    mode: str | Mode,
    budget: bool | str | float | timedelta,
    expired: str,
    name: str | None,
    **others: Any,
) -> DataFrame:
    """`shed` for a DataFrame of Spark Connect; `others` are its arguments that mean nothing here."""
    asked = [f"{each}={others[each]!r}" for each, default in _DEFAULTS.items() if others[each] != default]
    if asked:
        raise InvalidArgument(
            "over Spark Connect a batch has a time budget and nothing else is shed",
            got=", ".join(asked),
            hint="leave it out, or use a classic session (without .remote(…))",
        )
    if check_mode(mode) is Mode.DRY_RUN:
        raise InvalidArgument(
            "over Spark Connect nobody can tell what would have been dropped",
            got='mode="dry-run"',
            hint='choose "enforce" or "off", or use a classic session (without .remote(…))',
        )
    if not events.isStreaming:
        raise InvalidArgument(
            "shed() takes a streaming DataFrame, and this one is a batch",
            got=f"a batch DataFrame with columns {', '.join(events.columns)}",
            hint="read it with spark.readStream instead of spark.read",
        )
    bound = seconds(latency, "latency")
    most = check_budget(budget, bound)
    arrival = None if arrived is None else check_arrival(events, arrived)
    check_expired(expired, arrival is not None)
    spared = check_protect(events, protect)
    enforced = check_mode(mode) is Mode.ENFORCE
    allowed = (SHARE * bound if most is None else most) if enforced and most != 0.0 else None
    number = next(_numbers)
    handle = ConnectShedder(name or f"shed-{number}", number, events.sparkSession, bound, allowed)
    kept = events.observe(handle.metric("came"), F.count(F.lit(1)).alias("rows"))
    if expired == "drop" and arrival is not None and enforced:
        fresh = F.coalesce(F.unix_millis(arrival.cast("timestamp")) >= _planned(-bound), F.lit(True))
        kept = kept.where(_or(fresh, spared)).observe(handle.metric("timely"), F.count(F.lit(1)).alias("rows"))
    if allowed is not None:
        kept = kept.where(_or(F.expr(_CLOCK) < _planned(allowed), spared))
    kept = kept.observe(handle.metric("kept"), F.count(F.lit(1)).alias("rows"))
    _handles[handle.name] = handle
    vars(kept)["_streamshed"] = handle
    return kept


def connect_handle(of: object) -> ConnectShedder | None:
    """The handle of a DataFrame that `shed` returned over Spark Connect, or of that name."""
    if isinstance(of, str):
        return _handles.get(of)
    found = vars(of).get("_streamshed") if is_remote(of) else None
    return found if isinstance(found, ConnectShedder) else None


def _planned(offset: float) -> Column:
    """When the batch was planned, and so many seconds, in milliseconds.

    A subquery is planned with the batch, and its time is of then. An array is data to the generated code, which is
    not compiled anew for another number; the index is always 0, but not so that the optimizer could know.
    """
    moment = f"(SELECT array(unix_millis(current_timestamp()) + {round(offset * 1000)}L))"
    return F.expr(f"get({moment}, shiftright(spark_partition_id(), 31))")


def _or(passes: Column, spared: Column | None) -> Column:
    return passes if spared is None else passes | F.coalesce(spared, F.lit(False))


class ConnectShedder(Handle):
    """The handle of a stream that is shed over Spark Connect: its budget and its books. Nothing can be set."""

    settings: ClassVar[tuple[str, ...]] = ()
    ledger: Ledger
    latency: float
    plan: Plan

    def __init__(self, name: str, number: int, spark: Any, latency: float, budget: float | None) -> None:
        super().__init__(name)
        self.ledger = Ledger()
        self.latency = latency
        why = "a fixed time budget (Spark Connect)" if budget is not None else "nothing is shed"
        self.plan = Plan(reason=why, budget=budget, mode=Mode.OFF if budget is None else Mode.ENFORCE)
        self._number = number
        self._samples: dict[str, SampleBuilder] = {}
        self._spark = spark
        self._listener = _Listener(self)
        spark.streams.addListener(self._listener)

    def metric(self, what: str) -> str:
        return f"streamshed-{self._number}-{what}"

    def report(self) -> Report:
        """What arrived, what was kept, and how late it was."""
        return self.ledger.report()

    def close(self) -> None:
        """Stop counting. The budget is part of the plan, and holds as long as the query runs."""
        if not self._closed:
            self._closed = True
            self._spark.streams.removeListener(self._listener)

    def progress(self, report: str) -> None:
        """A batch was reported."""
        data = json.loads(report)
        observed = data.get("observedMetrics") or {}
        if self.metric("came") not in observed:
            return
        told = Progress.parse(report)
        came = _rows(observed, self.metric("came"), 0)
        timely = _rows(observed, self.metric("timely"), came)
        kept = _rows(observed, self.metric("kept"), timely)
        with self._locked():
            builder = self._samples.setdefault(told.run_id, SampleBuilder(data["id"], 0.0))
            self.ledger.open(data["id"], data.get("name") or data["id"][:8])
            sample = builder.finished(told, Counts(came, kept, timely - kept, came - timely), KEEP_ALL, 1.0)
            self.ledger.record(sample, self.plan, bound=self.latency)


def _rows(observed: dict[str, Any], name: str, otherwise: int) -> int:
    return int(observed[name]["rows"]) if name in observed else otherwise


class _Listener(StreamingQueryListener):
    def __init__(self, handle: ConnectShedder) -> None:
        self._handle = handle

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        try:
            self._handle.progress(event.progress.json)
        except Exception as error:
            log.warning("%s: a report could not be read (%s)", self._handle.name, error)

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        pass
