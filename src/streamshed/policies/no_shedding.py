"""`none`: the policy that never sheds; what plain Spark does."""

from __future__ import annotations

from streamshed.records import Choice, Sample


class NoShedding:
    """Null object: asked for a plan, it plans nothing.

    >>> NoShedding().choose(0.1)
    Choice(drops=(), share=1.0)
    """

    name = "none"
    steady = True

    def learn(self, sample: Sample) -> None:
        """Whatever happens, it sheds nothing."""

    def choose(self, share: float) -> Choice:
        return Choice()
