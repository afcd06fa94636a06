"""One base error. A message says the problem, what was got, and what to do about it."""

from __future__ import annotations


class StreamshedError(Exception):
    """Base of every error that Streamshed raises on purpose.

    >>> print(StreamshedError("latency must be positive", got="0 s", hint='give one like "4 seconds"'))
    latency must be positive
      got:  0 s
      hint: give one like "4 seconds"
    """

    def __init__(self, problem: str, *, got: object = None, hint: str | None = None) -> None:
        self.problem = problem
        self.got = got
        self.hint = hint
        lines = [problem]
        if got is not None:
            lines.append(f"  got:  {got}")
        if hint is not None:
            lines.append(f"  hint: {hint}")
        super().__init__("\n".join(lines))


class InvalidArgument(StreamshedError, ValueError):
    """An argument, a spec or a setting that cannot be used; raised before anything starts."""


class EnvironmentProblem(StreamshedError, RuntimeError):
    """The machine or the Spark session lacks something Streamshed needs."""
