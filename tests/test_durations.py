from datetime import timedelta

import pytest

from streamshed.durations import seconds
from streamshed.errors import InvalidArgument


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("4 seconds", 4), ("4s", 4), ("1 second", 1), (" 2.5 S ", 2.5), ("500 ms", 0.5), ("2 min", 120),
        ("1 hour", 3600), ("2 days", 172800), ("1e-3 s", 0.001), (3, 3), (0.25, 0.25), (timedelta(minutes=1), 60),
    ],
)  # fmt: skip
def test_lengths_of_time(text: object, length: float) -> None:
    assert seconds(text) == length  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", ["fast", "", "4", "4 bananas", "-1 s", "0 s", 0, -3, float("nan"), None, True])
def test_what_is_none(wrong: object) -> None:
    with pytest.raises(InvalidArgument, match="length of time above 0") as caught:
        seconds(wrong, "latency")  # type: ignore[arg-type]
    assert "latency" in str(caught.value)
    assert repr(wrong) in str(caught.value)
