"""Where drops take whole keys: a source that names a `key` loses all rows of a key or none of them.

A pair of a join needs both of its rows. Where each side loses rows by themselves, with shares p and q left, p·q of the
pairs are. Where both sides lose the same keys it is min(p, q): the join loses the share and not its square.

A key is followed from its sources as long as its columns are handed on as they are: through filters, unions of
streams with equal keys, maps that only rename it, and joins on it whose sides have it both. Rows are dropped by key
on the arcs that leave sources and split points; elsewhere, and below aggregates, each row is dropped by itself.

Drops one after the other must be independent, and those on both sides of a join must not be: so each has a *level*,
the number of places above it at which keys can be dropped, and all drops of one level take the same keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamshed.network.expressions.expression import Field
from streamshed.network.graph import Filter, Join, Map, Network, Udf, Union

Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KeyPlace:
    """An arc on which whole keys are dropped."""

    columns: Key
    """Those that hold the key there."""
    level: int


def keys_of(network: Network) -> dict[str, Key]:
    """For each node whose rows have a key, the columns that hold it.

    >>> from streamshed.network import Builder
    >>> network = (
    ...     Builder("n").source("a", "k INT", key="k").source("b", "id INT, y INT", key="id")
    ...     .map("m", "b", {"k": "id"}).join("j", ["a", "m"], ["k"], 1.0).output("o", "j").build()
    ... )
    >>> keys_of(network)
    {'a': ('k',), 'b': ('id',), 'm': ('k',), 'j': ('k',)}
    """
    found: dict[str, Key] = {source.name: source.key for source in network.sources if source.key}
    for box in network.order:
        above = [found.get(name) for name in box.inputs]
        key = above[0]
        if key is None or any(other != key for other in above):
            continue
        if isinstance(box, Map):
            renamed = {each.name: name for name, each in box.select.items() if isinstance(each, Field)}
            if set(key) <= renamed.keys():
                found[box.name] = tuple(renamed[name] for name in key)
        elif (isinstance(box, Join) and _joined_by(network, box, key)) or isinstance(box, Filter | Union | Udf):
            found[box.name] = key
    return found


def _joined_by(network: Network, join: Join, key: Key) -> bool:
    """Whether rows of equal key, and no others, can meet: the same columns of the same types."""
    left, right = join.inputs
    return set(key) <= set(join.on) and all(
        network.column(left, name).type == network.column(right, name).type for name in key
    )


def sharing_joins(network: Network) -> frozenset[str]:
    """The joins whose sides lose the same keys."""
    keys = keys_of(network)
    return frozenset(box.name for box in network.order if isinstance(box, Join) and box.name in keys)


def key_places(network: Network) -> Mapping[str, KeyPlace]:
    """The arcs on which whole keys are dropped."""
    keys = keys_of(network)
    places = {source.name for source in network.sources} | set(network.split_points)
    level: dict[str, int] = {source.name: 0 for source in network.sources}
    for box in network.order:
        level[box.name] = max(level[name] + (name in places) for name in box.inputs)
    return {
        on: KeyPlace(keys[tail], level[tail])
        for tail in (*level,)
        if tail in places and tail in keys
        for on in network.arcs_out_of(tail)
    }
