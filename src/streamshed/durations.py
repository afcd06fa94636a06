"""Lengths of time as people write them."""

from __future__ import annotations

import re
from datetime import timedelta

from streamshed.errors import InvalidArgument

_UNITS = {
    1e-6: "us microsecond microseconds",
    1e-3: "ms msec msecs millisecond milliseconds",
    1.0: "s sec secs second seconds",
    60.0: "m min mins minute minutes",
    3600.0: "h hour hours",
    86400.0: "d day days",
}
_SECONDS = {name: length for length, names in _UNITS.items() for name in names.split()}
_PATTERN = re.compile(r"\s*((?:\d+(?:\.\d+)?|\.\d+)(?:e[-+]?\d+)?)\s*([a-z]+)\s*", re.IGNORECASE)


def seconds(value: str | float | timedelta, what: str = "a duration") -> float:
    """Seconds in a duration given as text, as a number of seconds, or as a timedelta; above 0.

    >>> seconds("4 seconds"), seconds("250 ms"), seconds("1.5 min"), seconds(2)
    (4.0, 0.25, 90.0, 2.0)
    """
    length: float | None = None
    if isinstance(value, timedelta):
        length = value.total_seconds()
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        length = float(value)
    elif isinstance(value, str):
        match = _PATTERN.fullmatch(value)
        if match and match[2].lower() in _SECONDS:
            length = float(match[1]) * _SECONDS[match[2].lower()]
    if length is None or not 0 < length < float("inf"):
        raise InvalidArgument(
            f"{what} must be a length of time above 0",
            got=repr(value),
            hint='write it like "4 seconds", "500 ms", "2 min", or as a number of seconds',
        )
    return length
