"""Numba's compiler, typed: the function keeps its signature, and its machine code is kept on disk.

Without numba, what is `compiled` can be imported and not called: the drop-in shedder and `plan` need none of it.
What is `quick` runs as the plain Python that it is: load-aware shedding works on executors that have no numba.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from streamshed.extras import missing

numba: Any
try:
    import numba
except ImportError:
    numba = None

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    """Compile at first use. No fast-math and no threads: the same inputs give the same bits."""
    return _compiled(function, cache=True, error_model="numpy")


def quick(function: Function) -> Function:
    """Compile at first use if numba is there. If not, the same source runs, slower, with the same results.

    It must therefore not rely on numbers that wrap around, nor divide by zero.
    """
    return function if numba is None else compiled(function)


def inlined(function: Function) -> Function:
    """Compile into its callers: a call with many arrays would count references to each of them."""
    return function if numba is None else _compiled(function, inline="always", error_model="numpy")


def _compiled(function: Function, **options: Any) -> Function:
    if numba is not None:
        return cast(Function, numba.njit(**options)(function))

    @wraps(function)
    def unusable(*args: object, **named: object) -> object:
        raise missing("numba", "full")

    return cast(Function, unusable)
