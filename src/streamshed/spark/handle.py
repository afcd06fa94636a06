"""What every handle has: settings that are checked, a wait for the last reports, and an end."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar, overload

from streamshed.errors import InvalidArgument, StreamshedError
from streamshed.records import Plan

if TYPE_CHECKING:
    from typing_extensions import Self

log = logging.getLogger("streamshed")

Told = TypeVar("Told", covariant=True)


class Ending(Protocol):
    """A query, as far as a handle waits for it."""

    @property
    def active(self) -> bool: ...


class UnknownSetting(StreamshedError, AttributeError):
    """Something was assigned that a handle does not have."""


_NEWS = ("drops", "wanted", "mode", "reason")


def is_news(before: Plan, plan: Plan) -> bool:
    """Whether a plan is worth telling of. A batch's time is not: it is another one in nearly every batch."""
    return any(getattr(before, what) != getattr(plan, what) for what in _NEWS)


class setting(Generic[Told]):  # noqa: N801  used as `property` is
    """A property of a handle that can be set while it runs: to assign it is to `configure` the handle."""

    def __init__(self, told: Callable[[Any], Told]) -> None:
        self._told = told
        self.__doc__ = told.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, handle: None, owner: type) -> Self: ...
    @overload
    def __get__(self, handle: object, owner: type) -> Told: ...
    def __get__(self, handle: object, owner: type) -> Self | Told:
        return self if handle is None else self._told(handle)

    def __set__(self, handle: Any, value: Any) -> None:
        handle.configure(**{self._name: value})


class Handle:
    """The base of handles: a context manager whose attributes cannot be misspelt."""

    settings: ClassVar[tuple[str, ...]] = ()
    """What may be set while it runs: every `setting`."""
    former: ClassVar[tuple[str, ...]] = ()
    """Names that settings had before."""
    name: str

    def __init_subclass__(cls) -> None:
        found = [name for name, each in vars(cls).items() if isinstance(each, setting)]
        cls.settings = (*cls.settings, *found)

    def __init__(self, name: str) -> None:
        self.name = name
        self._lock = threading.RLock()
        self._depth = 0
        self._queries: dict[str, Any] = {}
        self._callbacks: list[Callable[[Plan], None]] = []
        self._untold: list[Plan] = []
        self._grumbled: set[str] = set()
        self._closed = False

    def __setattr__(self, name: str, value: Any) -> None:
        declared = any(name in vars(kind).get("__annotations__", ()) for kind in type(self).__mro__)
        first = declared and name not in self.__dict__
        if not (name.startswith("_") or name in self.settings or name in self.former or first):
            raise UnknownSetting(
                f"{type(self).__name__} has no setting {name!r}",
                got=f"{name} = {value!r}",
                hint=f"these can be set while it runs: {', '.join(self.settings)}",
            )
        super().__setattr__(name, value)

    def on_plan(self, callback: Callable[[Plan], None]) -> None:
        """Have `callback(plan)` called at each change of plan."""
        self._callbacks.append(callback)

    def settle(self, seconds: float = 5.0) -> bool:
        """Wait until the books have every batch of the queries that have ended: reports come a moment later.

        False if that took longer than `seconds`.
        """
        deadline = time.monotonic() + seconds
        while any(not query.active for query in self._watches()):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def _ended(
        self, running: Callable[[], bool], failure: Callable[[], StreamshedError | None], timeout: float | None
    ) -> bool:
        """Wait until nothing runs any more, and raise what ended it; False after `timeout` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while running():
            if deadline is not None and time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        self.settle()
        failed = failure()
        if failed is not None:
            raise failed
        return True

    def _watches(self) -> list[Ending]:
        """The queries whose reports are waited for."""
        return list(self._queries.values())

    def close(self) -> None:
        """Keep every row from now on, and let go of threads, listeners and files. The books stay readable."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidArgument(
                "this handle is closed, and its stream keeps every row",
                got=self.name,
                hint="shed the stream anew and start its query again",
            )

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock. Callbacks come after it is let go, since they may do anything, even start a query."""
        with self._lock:
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                told: list[Plan] = []
                if self._depth == 0:
                    told, self._untold = self._untold, []
        for plan in told:
            for callback in self._callbacks:
                try:
                    callback(plan)
                except Exception:
                    log.warning("%s: an on_plan callback failed", self.name, exc_info=True)

    def _grumble(self, what: str, error: BaseException) -> None:
        """Tell of a problem that the job survives; the first of a kind aloud."""
        kind = f"{what}: {type(error).__name__}"
        level = logging.DEBUG if kind in self._grumbled else logging.WARNING
        self._grumbled.add(kind)
        log.log(level, "%s: %s (%s)", self.name, what, error)
