"""A row's place in its file is in the plans of batches that ask for it, and in no others.

Spark makes all fields of the hidden column of files as long as none is asked for, and numbering the rows of a
Parquet file costs a fifth of a job that only counts them. A drop asks for a row's number, but while nothing is
dropped it is not in the plan. So a rule is added to the session's optimizer (`UnaskedPlace.java`): it takes the
hidden column out of what is read from files in a stream if nothing asks for it. A calm job then runs the very plan
that it would run without us.

Queries take the rules of their session along when they start. Without the rule rows are numbered in vain, and
nothing else is different.
"""

from __future__ import annotations

import logging
import threading
import weakref
from typing import Any, ClassVar

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from streamshed.spark.native import Native
from streamshed.spark.orders.planned_data import java

log = logging.getLogger("streamshed")


class UnaskedPlace:
    """The rule in the optimizer of one session, for as long as a shed stream needs it."""

    _by_session: ClassVar[weakref.WeakKeyDictionary[SparkSession, UnaskedPlace]] = weakref.WeakKeyDictionary()
    _lock = threading.Lock()

    @classmethod
    def of(cls, spark: SparkSession) -> UnaskedPlace:
        with cls._lock:
            found = cls._by_session.get(spark)
            if found is None:
                found = cls._by_session[spark] = UnaskedPlace(spark)
            return found

    def __init__(self, spark: SparkSession) -> None:
        self._native = Native(spark)
        self._methods: Any = spark._jsparkSession.experimental()
        self._streams: set[int] = set()
        self._rule: Any = None

    def add(self, serial: int) -> None:
        """A shed stream tells its rows by their place in files."""
        with self._lock:
            self._streams.add(serial)
            if self._rule is None:
                self._install()

    def remove(self, serial: int) -> None:
        """A stream is closed; with the last one the rule goes."""
        with self._lock:
            self._streams.discard(serial)
            if self._rule is not None and not self._streams:
                self._set([each for each in self._rules() if not each.equals(self._rule)])
                self._rule = None

    def _install(self) -> None:
        try:
            rule = self._native.created(java(__package__, "UnaskedPlace"), [])
            self._set([*self._rules(), rule])
            self._rule = rule
        except Py4JError as error:
            log.debug("rows of files are numbered in every batch: this Spark takes no rule of ours (%s)", error)

    def _rules(self) -> list[Any]:
        rules = self._methods.extraOptimizations()
        return [rules.apply(place) for place in range(rules.size())]

    def _set(self, rules: list[Any]) -> None:
        # The setter of a Scala variable.
        getattr(self._methods, "extraOptimizations_$eq")(self._native.sequence(rules))
