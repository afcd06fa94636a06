"""How far the clocks of executors are from the driver's: a deadline is the driver's, and tested by theirs."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Iterable
from typing import Any, ClassVar

from pyspark.sql import SparkSession

log = logging.getLogger("streamshed")

_AGAIN_AFTER = 600.0  # seconds: executors come and go
_CLOCK = "CAST(reflect('java.lang.System', 'currentTimeMillis') AS BIGINT)"


def skew_of(asked: float, clocks: Iterable[float], answered: float) -> float:
    """Seconds by which the worst of these clocks is wrong for certain, if all were read between two moments.

    >>> skew_of(100.0, [100.2, 100.4], 100.5), skew_of(100.0, [97.0, 100.1], 100.5)
    (0.0, 3.0)
    """
    return max((max(asked - clock, clock - answered, 0.0) for clock in clocks), default=0.0)


class ClockSkew:
    """The clocks of a session's executors, looked at by a tiny job now and then, in a thread of its own.

    In a session without executors of its own there is one clock, and nothing to ask.
    """

    _by_session: ClassVar[weakref.WeakKeyDictionary[SparkSession, ClockSkew]] = weakref.WeakKeyDictionary()

    @classmethod
    def of(cls, spark: SparkSession) -> ClockSkew:
        known = cls._by_session.get(spark)
        if known is None:
            known = cls._by_session[spark] = ClockSkew(spark)
        return known

    def __init__(self, spark: SparkSession) -> None:
        master = spark.sparkContext.master or ""
        self._spark = weakref.proxy(spark)
        self._alone = master == "local" or master.startswith("local[")
        self.seconds: float | None = 0.0 if self._alone else None
        """The worst of them; None until that is known."""
        self._asked = 0.0
        self._thread: threading.Thread | None = None
        self._warned = False
        self.look()

    def look(self) -> None:
        """Ask anew, if the last time is long ago."""
        now = time.monotonic()
        if self._alone or (self._asked and now < self._asked + _AGAIN_AFTER):
            return
        self._asked = now
        self._thread = threading.Thread(target=self._ask, name="streamshed-clocks", daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> None:
        """Until they have answered, but not longer."""
        if self._thread is not None:
            self._thread.join(seconds)

    def agree(self, within: float) -> bool:
        """Whether all clocks are known to be right by so many seconds; if they are not, that is told once."""
        if self.seconds is None or self.seconds <= within:
            return self.seconds is not None
        if not self._warned:
            self._warned = True
            log.warning(
                "the clock of an executor is %.1f s off the driver's: batches get no time budget, and rows are "
                "dropped by plans alone. Have the machines' clocks set by NTP",
                self.seconds,
            )
        return False

    def _ask(self) -> None:
        try:
            self.seconds = self._measure()
        except Exception as error:
            log.warning("the clocks of the executors could not be asked; batches get no time budget (%s)", error)

    def _measure(self) -> float:
        context: Any = self._spark.sparkContext
        context.setJobDescription("streamshed: do the clocks of the executors agree?")
        tasks = max(2, context.defaultParallelism)
        rows = self._spark.range(0, tasks, 1, tasks).selectExpr(f"{_CLOCK} AS clock")
        asked = time.time()
        clocks = [row.clock / 1000.0 for row in rows.collect()]
        # Clocks are read in whole milliseconds.
        return skew_of(asked - 0.001, clocks, time.time())
