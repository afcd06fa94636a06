"""Packages that only some users need: what is said when one is missing."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from streamshed.errors import EnvironmentProblem


def need(package: str, extra: str) -> Any:
    """The package, or an error that says which extra of ours brings it.

    >>> need("json", "full").dumps([1])
    '[1]'
    >>> need("no_such_package", "lab")
    Traceback (most recent call last):
    ...
    streamshed.errors.EnvironmentProblem: this needs no_such_package, which is not installed
      hint: pip install "streamshed[lab]"
    """
    try:
        return import_module(package)
    except ImportError as error:
        raise missing(package, extra) from error


def missing(package: str, extra: str) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"this needs {package.partition('.')[0]}, which is not installed",
        hint=f'pip install "streamshed[{extra}]"',
    )
