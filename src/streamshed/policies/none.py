"""`none`: the policy that never sheds; what plain Spark does."""

from __future__ import annotations

from streamshed.records import Drop, Overload


class NoShedding:
    """Null object: asked for a plan, it plans nothing.

    >>> NoShedding().drops(Overload(arriving=10, fitting=1, rate=10, predicted=9, allowed=1))
    ()
    """

    name = "none"

    def drops(self, overload: Overload) -> tuple[Drop, ...]:
        return ()
