"""Durations as people write them."""

from __future__ import annotations

import re

from streamshed.errors import InvalidArgument

_SECONDS = {
    "us": 1e-6, "microsecond": 1e-6,
    "ms": 1e-3, "millisecond": 1e-3,
    "s": 1.0, "sec": 1.0, "second": 1.0,
    "m": 60.0, "min": 60.0, "minute": 60.0,
    "h": 3600.0, "hour": 3600.0,
    "d": 86400.0, "day": 86400.0,
}  # fmt: skip
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)\s*([A-Za-z]+)\s*")


def seconds(text: str | float) -> float:
    """Seconds in a duration; a bare number is seconds already.

    >>> seconds("10 seconds"), seconds("1 minute"), seconds("250ms"), seconds(2)
    (10.0, 60.0, 0.25, 2.0)
    """
    if isinstance(text, int | float) and not isinstance(text, bool):
        value = float(text)
    else:
        match = _DURATION.fullmatch(text) if isinstance(text, str) else None
        unit = match and (_SECONDS.get(match[2].lower()) or _SECONDS.get(match[2].lower().removesuffix("s")))
        if not match or not unit:
            raise InvalidArgument(
                "not a duration", got=repr(text), hint='a number and a unit, such as "10 seconds" or "500 ms"'
            )
        value = float(match[1]) * unit
    if not 0 < value < float("inf"):
        raise InvalidArgument("a duration must be positive", got=repr(text))
    return value
