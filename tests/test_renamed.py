"""Names that changed keep working for one version, and say so."""

from __future__ import annotations

import pytest

from streamshed.errors import InvalidArgument
from streamshed.renamed import renamed


@renamed(control="state", latency="target")
def keep(rows: int, *, state: str | None = None, target: str = "avg 1 second") -> tuple[int, str | None, str]:
    """Some words."""
    return rows, state, target


def test_new_names_are_taken_in_silence() -> None:
    assert keep(3, state="here", target="max 2 seconds") == (3, "here", "max 2 seconds")
    assert keep.__doc__ == "Some words."


def test_an_old_name_works_and_warns() -> None:
    with pytest.warns(DeprecationWarning, match=r"keep\(control=…\) is called state=… now"):
        assert keep(3, control="here") == (3, "here", "avg 1 second")  # type: ignore[call-arg]


def test_both_names_are_one_too_many() -> None:
    with pytest.raises(InvalidArgument, match="state was given twice"):
        keep(3, state="here", control="there")  # type: ignore[call-arg]
