"""Watches the streaming queries of a session and tells each shed stream what its queries did.

Spark reports a batch some 0.2 s after its end and from threads of its own; here the reports meet the
batch's row counts, and one worker thread hands the finished samples on. Nothing in here may hurt the
user's job: an error is logged once a kind, the shed stream fails open, and the queries go on.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import queue
import threading
import time
import weakref
from typing import Any, ClassVar

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streamshed.spark.watch.plan_counts import serials_in
from streamshed.spark.watch.progress import Progress
from streamshed.spark.watch.query_watch import REPORT_DELAY, QueryWatch, Watched

log = logging.getLogger("streamshed")

_TICK = 0.1  # seconds between two looks at the running batches; none is over sooner than that
_MOST_WAITING = 200  # events; beyond that no executions are taken on: each holds a batch's plans in the JVM
_RENEW_EVERY = 1.0  # seconds between two chances for streams to renew what is in force


class SessionMonitor:
    """The listeners and the worker thread of one Spark session."""

    _by_session: ClassVar[weakref.WeakKeyDictionary[SparkSession, SessionMonitor]] = weakref.WeakKeyDictionary()
    _lock = threading.Lock()

    @classmethod
    def of(cls, spark: SparkSession) -> SessionMonitor:
        with cls._lock:
            monitor = cls._by_session.get(spark)
            if monitor is None or not monitor.alive:
                monitor = cls._by_session[spark] = SessionMonitor(spark)
            return monitor

    def __init__(self, spark: SparkSession) -> None:
        self._spark = weakref.proxy(spark)
        self._streams: dict[int, Watched] = {}
        self._queries: dict[str, QueryWatch] = {}
        self._events: queue.SimpleQueue[tuple[str, Any, Any] | None] = queue.SimpleQueue()
        self._warned: set[str] = set()
        self._next_renewal = 0.0
        gateway: Any = spark.sparkContext._gateway
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call, unused-ignore]
        self._listener = gateway.jvm.org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper(
            _Listener(self)
        )
        spark.streams._jsqm.addListener(self._listener)
        executions: Any = spark._jsparkSession.listenerManager()
        executions.register(_ExecutionListener(self))
        # What Spark got is Java's stand-in for it, and a new one each time: to be let go of, that one is needed.
        self._counter = executions.listListeners()[-1]
        self._thread = threading.Thread(target=self._work, name="streamshed", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    @classmethod
    def streams_behind(cls, frame: DataFrame) -> list[Watched]:
        """The shed streams that a DataFrame reads, also through whatever was done to them since."""
        return cls._streams_in(frame._jdf.queryExecution().analyzed())

    @classmethod
    def streams_of(cls, query: StreamingQuery) -> list[Watched]:
        """The shed streams that a query reads."""
        return cls._streams_in(_execution_of(query).analyzedPlan())

    @classmethod
    def all_streams(cls) -> list[Watched]:
        """Every shed stream of this process that was not closed."""
        return [stream for monitor in list(cls._by_session.values()) for stream in monitor._streams.values()]

    @classmethod
    def _streams_in(cls, plan: Any) -> list[Watched]:
        known = {stream.serial: stream for stream in cls.all_streams()}
        return [known[serial] for serial in serials_in(plan) if serial in known]

    def add(self, stream: Watched) -> None:
        self._streams[stream.serial] = stream

    def remove(self, stream: Watched) -> None:
        """Forget a stream. With the last one, the listeners and the thread go as well."""
        with self._lock:
            self._streams.pop(stream.serial, None)
            for watch in self._queries.values():
                watch.streams = [each for each in watch.streams if each is not stream]
            last = not self._streams
            if last:
                for session in [s for s, m in self._by_session.items() if m is self]:
                    del self._by_session[session]
        if last:
            self.close()

    def close(self) -> None:
        """Let go of the session; what is in force runs out by itself."""
        atexit.unregister(self.close)
        self._events.put(None)
        with contextlib.suppress(Exception):
            self._spark.streams._jsqm.removeListener(self._listener)
            self._spark._jsparkSession.listenerManager().unregister(self._counter)

    # Called from Spark's threads: quick, and never raising.

    def started(self, query_id: str, run_id: str, name: str | None) -> None:
        """Find out whether a query uses shed streams. Its first batch is planned after this returns."""
        try:
            execution = _execution_of(self._spark.streams.get(query_id))
            serials = serials_in(execution.analyzedPlan())
            streams = [self._streams[serial] for serial in serials if serial in self._streams]
            if not streams:
                return
            watch = QueryWatch(execution, query_id, run_id, name, streams, self._spark)
            for position, stream in enumerate(streams):
                stream.attach(watch, position)
            self._queries[watch.run_id] = watch
        except Exception as error:
            self._warn("a query could not be attached; its rows are all kept", error)

    def enqueue(self, kind: str, run_id: str, payload: Any) -> None:
        self._events.put((kind, run_id, payload))

    def executed(self, execution: Any) -> None:
        """Take an executed plan, unless the worker is far behind: its batch then is one of the unseen."""
        if self._events.qsize() < _MOST_WAITING:
            self.enqueue("executed", "", execution)

    # The worker thread.

    def _work(self) -> None:
        try:
            while True:
                try:
                    event = self._events.get(timeout=_TICK if self._queries else 1.0)
                except queue.Empty:
                    event = ("tick", None, None)
                if event is None:
                    return
                self._handle(*event)
        except BaseException as error:
            for stream in list(self._streams.values()):
                stream.fail_open(error)
            raise

    def _handle(self, kind: str, run_id: str | None, payload: Any) -> None:
        now = time.time()
        if kind == "progress":
            try:
                payload = Progress.parse(payload)
            except Exception as error:
                self._warn("a progress report could not be read; its batch goes uncounted", error)
                return
            run_id = payload.run_id
        elif kind == "executed" and self._queries:
            run_id = _run_of(payload)
        for watch in list(self._queries.values()):
            mine = watch.run_id == run_id
            try:
                if kind == "terminated" and mine:
                    self._end(watch, now)
                    continue
                if kind == "executed" and mine:
                    watch.capture(payload)
                elif kind == "executed" and run_id is None:
                    # Not a streaming batch itself; but `foreachBatch` may have run it, and its batch can be seen.
                    watch.capture_if_none()
                elif kind == "progress" and mine:
                    watch.report(payload, now)
                else:
                    watch.capture_for_look(now)
                watch.settle(now)
                watch.look(now)
            except Exception as error:
                if _stopped(error):
                    return
                self._fail_open(watch.streams, f"query {watch.name}: a batch could not be read", error)
        if now >= self._next_renewal:
            self._next_renewal = now + _RENEW_EVERY
            self._renew(now)

    def _end(self, watch: QueryWatch, now: float) -> None:
        """A query has ended. Whatever cannot be read of its last batches, it is let go of."""
        try:
            watch.settle(now + REPORT_DELAY)
        finally:
            del self._queries[watch.run_id]
            for stream in watch.streams:
                stream.detach(watch)

    def _renew(self, now: float) -> None:
        for stream in {id(each): each for watch in self._queries.values() for each in watch.streams}.values():
            try:
                stream.renew(now)
            except Exception as error:
                self._warn("a plan in force could not be renewed", error)

    def _fail_open(self, streams: list[Watched], what: str, error: Exception) -> None:
        self._warn(f"{what}; rows are kept", error)
        for stream in streams:
            try:
                stream.fail_open(error)
            except Exception as another:
                self._warn("failing open failed", another)

    def _warn(self, what: str, error: BaseException) -> None:
        kind = f"{what}: {type(error).__name__}"
        level = logging.DEBUG if kind in self._warned else logging.WARNING
        self._warned.add(kind)
        log.log(level, "%s (%s)", what, error, exc_info=error if level == logging.DEBUG else None)


class _Listener:
    """Spark's listener for streaming queries, without PySpark's own wrapper.

    That one turns every report into Python objects field by field, a call into the JVM for each: more
    work than all the rest of this package does for a batch. The report is JSON already.
    """

    def __init__(self, monitor: SessionMonitor) -> None:
        self._monitor = monitor

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        self._monitor.started(str(event.id().toString()), str(event.runId().toString()), event.name())

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        self._monitor.enqueue("progress", "", str(event.progress().json()))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        self._monitor.enqueue("terminated", str(event.runId().toString()), None)

    class Java:
        implements = ["org.apache.spark.sql.streaming.PythonStreamingQueryListener"]  # noqa: RUF012


class _ExecutionListener:
    """Spark's QueryExecutionListener: hands over each executed plan, before the next can replace it."""

    def __init__(self, monitor: SessionMonitor) -> None:
        self._monitor = monitor

    def onSuccess(self, name: str, execution: Any, nanoseconds: int) -> None:  # noqa: N802
        self._monitor.executed(execution)

    def onFailure(self, name: str, execution: Any, error: Any) -> None:  # noqa: N802
        pass

    def equals(self, other: Any) -> bool:
        """Asked when a listener is unregistered, of those that are not the same object: those are others."""
        return False

    class Java:
        implements = ["org.apache.spark.sql.util.QueryExecutionListener"]  # noqa: RUF012


def _run_of(execution: Any) -> str | None:
    """The run of a streaming query that an execution is a batch of; None if it is none."""
    try:
        return str(execution.runId().toString())
    except Py4JError:
        return None


def _execution_of(query: Any) -> Any:
    """The JVM's StreamExecution behind a query, wrapped or not."""
    java = query._jsq
    return java.streamingQuery() if java.getClass().getSimpleName() == "StreamingQueryWrapper" else java


def _stopped(error: Exception) -> bool:
    """Whether this is only the JVM or the context going away under us."""
    return isinstance(error, (Py4JNetworkError, ReferenceError, ConnectionError))
