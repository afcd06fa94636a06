"""Python workers of Spark, made quick between short tasks.

Spark's worker collects garbage after every task. Going through pandas, Arrow and what else is loaded takes some
50 ms each time (docs/design.md), and a micro-batch is many short tasks. What is loaded stays loaded, so it is set
aside where the collector does not look.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

from pyspark import TaskContext

# Libraries are loaded in the first tasks. Later ones must not add to it: a cycle that is set aside is never freed.
_TASKS = 3
_settled = 0


def settle() -> None:
    """Set aside what is loaded, if this is one of the first tasks of a worker."""
    global _settled
    if _settled < _TASKS and TaskContext.get() is not None:
        _settled += 1
        gc.freeze()


class Shipped:
    """A function that settles the worker it arrives in, and is itself again there."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.__name__ = getattr(function, "__name__", type(function).__name__)

    def __call__(self, *values: Any) -> Any:
        return self.function(*values)

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrived, (self.function,)


def _arrived(function: Callable[..., Any]) -> Callable[..., Any]:
    settle()
    return function
