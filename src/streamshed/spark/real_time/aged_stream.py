"""What handles in real-time mode have in common: settings that go to running tasks, and books that come back."""

from __future__ import annotations

import json
import logging
from datetime import timedelta
from functools import reduce
from typing import Any, Protocol

from pyspark.sql import SparkSession

from streamshed.durations import seconds
from streamshed.quality import Ledger, Report
from streamshed.quality.saved_report import BROKEN
from streamshed.records import Mode, Sample
from streamshed.spark.arguments import check_floor, check_mode
from streamshed.spark.handle import Handle, setting
from streamshed.spark.orders.history import KEEP_ALL, Span
from streamshed.spark.orders.store import Store
from streamshed.spark.real_time.executor_control import ExecutorControl
from streamshed.spark.real_time.ladder_books import LadderCounts, RungCounts
from streamshed.spark.real_time.ladder_rule import Ladder, table_of
from streamshed.spark.real_time.refusals import refused_in
from streamshed.spark.watch.query_watch import QueryWatch
from streamshed.spark.watch.session_monitor import SessionMonitor

log = logging.getLogger("streamshed")

_FOREVER = 1e9  # seconds
_PAGES = 8  # batches whose books are kept apart: those that Spark may not have committed are among them
_OTHER_TRIGGER = (
    "%s: query %s was started with %s, but its stream is shed for real-time mode: all of its rows are kept. "
    'Start it with .trigger(realTime="5 minutes"), or call shed without trigger="real-time"'
)


class Books(Protocol):
    """Counts the rows of a batch, in its tasks and on the driver."""

    rungs: int
    """Of each class."""

    def take(self) -> LadderCounts: ...
    def running(self) -> LadderCounts: ...
    def listen(self) -> None: ...
    def cease(self) -> None: ...


class AgedStream(Handle):
    """A stream, or a network, whose rows are judged one by one by their age.

    Settings take effect in the batch that is running, within a fraction of a second. `report()` has the batches
    that are over, exactly; `live()` has the one that is running. A batch that is stopped in the middle is done
    again by Spark, and counted then.
    """

    serial: int
    ledger: Ledger
    """Every batch's counts; `report()` adds them up."""

    def __init__(
        self,
        serial: int,
        name: str,
        named: bool,
        control: ExecutorControl,
        books: Books,
        spark: SparkSession,
        ladder: Ladder,
        mode: Mode,
    ) -> None:
        super().__init__(name)
        self.serial = serial
        self.ledger = Ledger()
        self._named = named
        self._control = control
        self._books = books
        self._spark = spark
        self._ladder = ladder
        self._mode = mode
        self._met: dict[str, tuple[RungCounts, ...]] = {}
        self._without_date: dict[str, int] = {}
        self._queries: dict[str, QueryWatch] = {}
        self._stores: dict[str, tuple[Store, str]] = {}
        self._others: set[str] = set()
        self._pages: dict[str, list[dict[str, Any]]] = {}
        self._in_force: list[int] = []

    # What the user sees.

    def report(self) -> Report:
        """What arrived, what was kept, and how old it was at the drop, in the batches that are over."""
        return self.ledger.report()

    @property
    def undated(self) -> int:
        """Rows without an arrival time, which were kept. Of the batches that are over."""
        return sum(self._without_date.values())

    @property
    def _by_class(self) -> tuple[RungCounts, ...]:
        """Rows of each class, of all queries."""
        nothing = tuple(RungCounts(0, (0,) * self._books.rungs) for _ in self._ladder.classes)
        return reduce(_sums, self._met.values(), nothing)

    def live(self) -> LadderCounts:
        """The batch that is running, as its tasks told with their last heartbeats: `arrived`, `kept`, `shed`, by
        class and rung, and `ages`, a histogram. See `spark.executor.heartbeatInterval`."""
        return self._books.running()

    @setting
    def mode(self) -> Mode:
        return self._mode

    @setting
    def latency(self) -> float:
        """The bound, in seconds."""
        return self._ladder.bound

    @setting
    def floor(self) -> float:
        return self._ladder.floor

    def configure(
        self,
        *,
        mode: str | Mode | None = None,
        latency: str | float | timedelta | None = None,
        floor: float | None = None,
    ) -> None:
        """Change settings while the queries run; running tasks see them."""
        wanted_mode = self._mode if mode is None else check_mode(mode)
        bound = self._ladder.bound if latency is None else seconds(latency, "latency")
        share = self._ladder.floor if floor is None else check_floor(floor)
        self._check_open()
        with self._locked():
            self._mode = wanted_mode
            self._ladder = self._ladder.changed(bound, share)
            self._enforce()

    def close(self) -> None:
        """Keep every row from now on, and let go of threads and listeners. The books stay readable."""
        with self._locked():
            if self._closed:
                return
            self._closed = True
            self._books.cease()
            self._enforce()
        SessionMonitor.of(self._spark).remove(self)

    # What the monitor calls.

    def attach(self, query: QueryWatch, position: int) -> None:
        """A query that reads this stream starts."""
        with self._locked():
            if not query.real_time:
                self._others.add(query.run_id)
                log.warning(_OTHER_TRIGGER, self.name, query.name, query.trigger)
            refused = refused_in(self._spark._jvm, query._execution.analyzedPlan())
            if refused is not None:
                log.warning(
                    "%s: real-time mode will refuse query %s: a step of it %s (%s)",
                    self.name,
                    query.name,
                    *refused[::-1],
                )
            store = Store(self._spark, f"{query.checkpoint}/streamshed")
            file = f"{self.name if self._named else f'ladder-{position}'}.json"
            self._restore(query, store, file)
            self.ledger.open(query.id, query.name, query.committed)
            self._queries[query.id] = query
            self._books.listen()
            self._stores[query.id] = (store, file)
            self._enforce()

    def detach(self, query: QueryWatch) -> None:
        with self._locked():
            self._others.discard(query.run_id)
            if self._queries.get(query.id) is not query:
                return  # the news that a run has ended may come after the next one has begun
            self._save(query.id)
            del self._queries[query.id]
            self._stores.pop(query.id, None)
            if not self._queries:
                self._books.cease()
            if not self._closed:
                self._enforce()

    def span_at(self, batch_time: int) -> Span:
        return KEEP_ALL

    def look_after(self) -> float:
        """Seconds after which a running batch is worth a look: never, since rows are judged in its tasks."""
        return _FOREVER

    def finished(self, query: QueryWatch, sample: Sample) -> None:
        with self._locked():
            counts = self._books_of(query).take()
            if not self.ledger.enter(query.id, sample.batch, self._batch_report(query, sample, counts)):
                return
            self._met[query.id] = _sums(self._met.get(query.id, ()), counts.by_class)
            self._without_date[query.id] = self._without_date.get(query.id, 0) + counts.undated
            self._warn_of_clocks(counts)
            self._save(query.id)

    def _books_of(self, query: QueryWatch) -> Books:
        """What counts the rows of a query."""
        return self._books

    def _batch_report(self, query: QueryWatch, sample: Sample, counts: LadderCounts) -> Report:
        return Report(
            arrived=sample.arrived,
            kept=sample.kept,
            would_shed=counts.would_shed,
            misdated=counts.misdated,
            batches=int(sample.arrived > 0),
            over_bound=int(counts.ages.worst > self.latency),
            latency_last=counts.ages.worst,
            latencies=counts.ages,
        )

    def running(self, query: QueryWatch, sample: Sample) -> None:
        pass

    def renew(self, now: float) -> None:
        """Time passes: executors may be new."""
        with self._locked():
            try:
                self._control.serve()
            except Exception as error:
                self._grumble(
                    "an executor could not be told what is in force; it goes on as it was told before", error
                )

    def fail_open(self, problem: BaseException) -> None:
        """Something of ours broke. Tasks judge rows without us, so nothing else is the matter."""
        self._grumble("a batch could not be read; its rows were judged all the same", problem)

    def _enforce(self) -> None:
        """Have the tasks do what is wanted now."""
        keep_all = self._closed or bool(self._others) or not self._queries
        table = table_of(self._ladder, Mode.OFF if keep_all else self._mode)
        if table != self._in_force:
            self._in_force = table
            self._control.publish(table)

    def _warn_of_clocks(self, counts: LadderCounts) -> None:
        dated = counts.arrived - counts.undated
        if counts.misdated:
            problem = (
                f"{counts.misdated:,} rows came from the future, by up to {counts.ahead:.3g} s, and were kept"
            )
        elif dated > 0 and counts.ages.percentile(0.0) > self.latency:
            problem = f"no row of the batch was younger than {counts.ages.percentile(0.0):.3g} s at the drop"
        else:
            return
        log.warning(
            "%s: %s: do the clocks of producers and executors agree? Is the source that far behind?",
            self.name,
            problem,
        )

    def _restore(self, query: QueryWatch, store: Store, file: str) -> None:
        """Continue with the books as they were after the last batch that Spark has committed.

        In this mode Spark commits a batch some time after it has reported it. One that it had not committed before
        a crash runs again, and, since its end is when its time is over, with other rows than before.
        """
        data = store.read(file)
        if data is None:
            return
        try:
            pages = [page for page in json.loads(data)["pages"] if page["ledger"]["last_batch"] <= query.committed]
            self._pages[query.id] = pages
            if not pages or pages[-1]["ledger"]["last_batch"] <= self.ledger.last_batch(query.id):
                return
            page = pages[-1]
            self.ledger.restore(query.id, page["ledger"])
            self._without_date[query.id] = int(page["undated"])
            by_class = tuple(RungCounts(int(n), tuple(map(int, shed))) for n, shed in page["classes"])
            if [len(each.shed) for each in by_class] == [self._books.rungs] * len(self._ladder.classes):
                self._met[query.id] = by_class  # else it is another ladder
        except BROKEN as error:
            log.warning("%s is broken and is left aside (%s)", store.path(file), error)

    def _save(self, query_id: str) -> None:
        """Keep the books of the last batches beside the query's checkpoint, for its next run."""
        try:
            store, file = self._stores[query_id]
            classes = [[counts.arrived, list(counts.shed)] for counts in self._met.get(query_id, ())]
            page: dict[str, Any] = {
                "ledger": self.ledger.totals(query_id),
                "undated": self._without_date.get(query_id, 0),
                "classes": classes,
            }
            last = page["ledger"]["last_batch"]
            pages = [each for each in self._pages.get(query_id, []) if each["ledger"]["last_batch"] < last]
            self._pages[query_id] = [*pages, page][-_PAGES:]
            store.write(file, json.dumps({"pages": self._pages[query_id]}, separators=(",", ":")).encode())
        except Exception as error:
            self._grumble("the books could not be stored", error)


def _sums(before: tuple[RungCounts, ...], now: tuple[RungCounts, ...]) -> tuple[RungCounts, ...]:
    """Class by class; what is not there yet is nothing."""
    return tuple(one.plus(other) for one, other in zip(before, now, strict=True)) if before else now
