"""Arguments by their names before: they keep working for one version, with a warning."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import TypeVar, cast

from streamshed.errors import InvalidArgument

Function = TypeVar("Function", bound=Callable[..., object])


def renamed(**names: str) -> Callable[[Function], Function]:
    """Let a function take keyword arguments by names that they had before, given as `old="new"`.

    >>> @renamed(control="state")
    ... def keep(*, state=None):
    ...     return state
    >>> keep(state="here")
    'here'
    """

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def call(*values: object, **options: object) -> object:
            for old in names.keys() & options.keys():
                new = names[old]
                if new in options:
                    raise InvalidArgument(
                        f"{new} was given twice",
                        got=f"{new}=… and {old}=…, its name before",
                        hint=f"give {new} alone",
                    )
                warn(f"{function.__name__}({old}=…)", f"{new}=…")
                options[new] = options.pop(old)
            return function(*values, **options)

        return cast(Function, call)

    return decorate


def warn(old: str, new: str) -> None:
    """Tell whoever wrote the call that a name is on its way out."""
    warnings.warn(f"{old} is called {new} now; the old name goes with the next version", DeprecationWarning, 3)
