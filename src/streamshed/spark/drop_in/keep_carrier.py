"""A shed stream's plans on their way to its queries: a keep fraction, in the stream's control file."""

from __future__ import annotations

from collections.abc import Callable

from streamshed.records import Plan
from streamshed.spark.drop_in.drop_order import ControlFile
from streamshed.spark.orders.history import History, Span

_FOREVER = 10 * 365 * 86400.0  # seconds: what holds until somebody says otherwise


class KeepCarrier:
    """Has the queries of a shed stream read which share they keep."""

    def __init__(self, control: ControlFile, salt: int, save: Callable[[History], None]) -> None:
        """`save` stores the plans beside every checkpoint."""
        self._control = control
        self.salt = salt
        """Which rows a share means."""
        self._save = save

    @property
    def path(self) -> str:
        return self._control.path

    def value(self, plan: Plan) -> float:
        return plan.keep

    def drops(self, value: float) -> bool:
        return value < 1.0

    def publish(self, value: float, lease: float, *, mirror: bool) -> Span | None:
        return self._control.publish(
            value, lease, self._next_version, also=self._save, salt=self.salt, mirror=mirror
        )

    def keep_all(self) -> None:
        version = self._next_version
        self._control.open_row(lambda start: Span(start, start + int(_FOREVER * 1000), 1.0, version))
        self._save(self._control.history)

    def follow(self, now: float) -> tuple[float, float] | None:
        history = self._control.follow()
        if history is None:
            return None
        span = history.at(int(now * 1000))
        return span.keep, span.until / 1000.0

    def await_start(self) -> None:
        self._control.await_start()

    @property
    def _next_version(self) -> int:
        return self._control.history.version + 1
