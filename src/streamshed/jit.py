"""Numba's compiler, typed: the function keeps its signature, and its machine code is kept on disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    """Compile at first use. No fast-math and no threads: the same inputs give the same bits."""
    return cast(Function, numba.njit(cache=True, error_model="numpy")(function))


def inlined(function: Function) -> Function:
    """Compile into its callers: a call with many arrays would count references to each of them."""
    return cast(Function, numba.njit(inline="always", error_model="numpy")(function))
