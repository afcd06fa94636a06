"""Every example in a docstring of ours runs, and gives what it says."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import streamshed

ROOT = Path(streamshed.__file__).parent
FILES = sorted(file.relative_to(ROOT.parent) for file in ROOT.rglob("*.py") if ">>> " in file.read_text())


def test_there_are_some() -> None:
    assert len(FILES) > 50


@pytest.mark.parametrize("file", FILES, ids=str)
def test_examples_in_docstrings(file: Path) -> None:
    name = ".".join(file.with_suffix("").parts).removesuffix(".__init__")
    outcome = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert outcome.attempted > 0
    assert outcome.failed == 0
