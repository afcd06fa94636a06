"""SIC, the source information content of a result: how much of what the sources sent went into it (DISSP 4.2).

All rows that one source sent in a source time window (STW) bring a query 1/|S| together, |S| being the number of
its sources; a box shares what came in among the rows that go out (eq. 4.1):

    SIC of a source's row = 1 / (|S| · rows of that source in the STW)
    SIC of a row out      = Σ SIC of the rows in / number of rows out

So a filter loses nothing, however few rows pass it: what it takes out, no result needed. A drop loses its rows'
part, and so does a link or a node that fails. Where rows go several ways to one output, each way carries an even
part, so that no box makes information: what leaves it is what came in. A query's SIC is the sum over its results,
1 when nothing was lost.

Here is the account by counts: of each arc, how many rows reached it and how many passed it. `source_time_window`
has the window, and the account that batches carry with them.

>>> from streamshed.network import Builder
>>> network = (
...     Builder("one").source("s", "x INT").filter("f", "s", "x > 0")
...     .aggregate("mean", "f", 60, {"x": "avg(x)"}).output("o", "mean").build()
... )
>>> account = InformationFlow.of(network, "o", {"s->f": (1000, 500), "f->mean": (90, 90), "mean->o": (1, 1)})
>>> account.sic, account.passing["f->mean"]
(0.5, 0.5)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from streamshed.errors import InvalidArgument
from streamshed.network.graph import WINDOWS, Network, Source, arc, inputs

Passed = Mapping[str, tuple[float, float]]
"""Arc ─► rows that reached it, rows that passed it."""
PassedByOrigin = Mapping[tuple[str, str], tuple[float, float]]
"""The same for each (origin of rows, arc). An origin is a source, or a box that makes new rows of others."""


def derived(entering: Iterable[float], rows_out: int) -> float:
    """SIC of each row that leaves a box, from that of those that entered it (DISSP eq. 4.1).

    >>> derived([0.1, 0.1, 0.2], rows_out=2)
    0.2
    """
    if rows_out < 1:
        raise InvalidArgument("no row to carry the information", got=rows_out, hint="carry it to the next batch")
    return sum(entering) / rows_out


@dataclass(frozen=True, slots=True)
class InformationFlow:
    """What went along each arc towards one output, as shares of what its sources sent."""

    entering: Mapping[str, float]
    """What reached each arc's drops."""
    passing: Mapping[str, float]
    """What passed them."""
    by_source: Mapping[str, float]
    """For each source of the output, the share of its own information that reached the output."""

    @property
    def sic(self) -> float:
        """Of the output: the mean over its sources."""
        return sum(self.by_source.values()) / len(self.by_source)

    @staticmethod
    def of(network: Network, output: str, passed: Passed | PassedByOrigin) -> InformationFlow:
        """Follow each source's information down to an output.

        passed: arcs that are not told of, and those that nothing reached, lose nothing
        """
        ways = _Ways(network, output)
        entering: dict[str, float] = {}
        passing: dict[str, float] = {}
        found: dict[str, float] = {}
        for source in ways.sources:
            arrived = ways.follow(source, passed, 1.0 / len(ways.sources), entering, passing)
            found[source] = min(1.0, arrived * len(ways.sources))
        return InformationFlow(entering, passing, found)


class _Ways:
    """The part of a network that leads to one output."""

    def __init__(self, network: Network, output: str) -> None:
        sources, boxes = network.above(output)
        if not sources:
            raise InvalidArgument("an output without a source has no information", got=output)
        self.output = output
        self.sources = tuple(source.name for source in sources)
        self._nodes = [*boxes, network.nodes[output]]
        names = {node.name for node in (*sources, *self._nodes)}
        self._ways_out = {name: sum(below in names for below in network.consumers[name]) for name in names}
        self._makes_rows = {box.name for box in boxes if box.makes_rows}

    def follow(
        self,
        source: str,
        passed: Passed | PassedByOrigin,
        share: float,
        entering: dict[str, float],
        passing: dict[str, float],
    ) -> float:
        """What of a source's share reaches the output; adds up what goes along each arc on the way."""
        leaving: dict[str, dict[str, float]] = {source: {source: share}}
        """By node, and by the origin of the rows that carry it."""
        for node in self._nodes:
            came: dict[str, float] = {}
            for above in () if isinstance(node, Source) else inputs(node):
                on = arc(above, node.name)
                for origin, mass in leaving.get(above, {}).items():
                    part = mass / self._ways_out[above]
                    through = part * _through(passed, origin, on)
                    entering[on] = entering.get(on, 0.0) + part
                    passing[on] = passing.get(on, 0.0) + through
                    came[origin] = came.get(origin, 0.0) + through
            leaving[node.name] = {node.name: sum(came.values())} if node.name in self._makes_rows else came
        return sum(leaving[self.output].values())


def _through(passed: Mapping[str, tuple[float, float]] | PassedByOrigin, origin: str, on: str) -> float:
    """Share of the rows of an origin that pass an arc."""
    counts: Mapping[object, tuple[float, float]] = passed  # type: ignore[assignment]
    reached, kept = counts.get((origin, on)) or counts.get(on) or (0, 0)
    if not 0 <= kept <= reached:
        raise InvalidArgument("more rows passed than came", got=f"{on}: {kept} of {reached}")
    return kept / reached if reached else 1.0


def sic_by_output(network: Network, passed: Passed | PassedByOrigin) -> dict[str, float]:
    """The SIC of every output: 1 when nothing was lost."""
    return {output.name: InformationFlow.of(network, output.name, passed).sic for output in network.outputs}


def information(
    network: Network, output: str, sent: Mapping[str, float], passed: Passed | PassedByOrigin
) -> dict[str, tuple[float, float]]:
    """By source of an output: rows that it sent, and rows of them that went into what the output got."""
    shares = InformationFlow.of(network, output, passed).by_source
    return {source: (sent.get(source, 0.0), sent.get(source, 0.0) * share) for source, share in shares.items()}


def below_a_window(network: Network, output: str) -> bool:
    """Whether an output's rows are results of windows, which are as many whatever went into them."""
    return any(isinstance(box, WINDOWS) for box in network.above(output)[1])


def jain(shares: Iterable[float]) -> float:
    """Jain's index, (Σ x)² / (n · Σ x²): 1 when all are equal, 1/n when one has everything.

    >>> jain([0.5, 0.5]), jain([1.0, 0.0])
    (1.0, 0.5)
    """
    values = list(shares)
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0
