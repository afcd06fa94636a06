"""Where drops take whole keys: a source that names a `key` loses all rows of a key or none of them.

A pair of a join needs both of its rows. Where each side loses rows by themselves, with shares p and q left, p·q of
the pairs are. Where both sides lose the same keys it is min(p, q): the join loses the share and not its square.

A key is followed from its sources as long as its columns are handed on as they are: through filters, unions of
streams with equal keys, maps that only rename it, and joins on it whose sides have it both. Rows are dropped by
key on the arcs that leave sources and split points; elsewhere, and below aggregates, each is dropped by itself. So
they are in parts of a network in which no join has a key on both sides: there is nothing to gain.

There is one order of the keys for a whole network, and drops take the last ones of it. So a drop that follows
another and keeps the share q of what the first left, p, keeps the first p·q of all keys (`key_shares`); where
streams meet of which different shares are left, q counts from the largest. So drops on the two sides of a join,
however deep, take the same keys.
"""

from __future__ import annotations

from collections.abc import Iterable

from streamshed.network.expressions.expression import Field, parse
from streamshed.network.graph import Filter, Join, Map, Network, Udf, Union
from streamshed.network.value_flow.spared import protecting, without_protection
from streamshed.records import Drop

Key = tuple[str, ...]


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


def key_places(network: Network) -> dict[str, Key]:
    """The arcs on which whole keys are dropped, with the columns that hold them there."""
    keys = keys_of(network)
    parts = {network.part_of[join] for join in sharing_joins(network)}
    tails = (*(source.name for source in network.sources), *network.split_points)
    return {
        on: keys[tail]
        for tail in tails
        if tail in keys and network.part_of[tail] in parts
        for on in network.arcs_out_of(tail)
    }


def key_shares(network: Network, drops: Iterable[Drop]) -> dict[str, float]:
    """For each arc on which whole keys are dropped, the share of all keys that is left before its own drops.

    Drops by value do not count: what they spare has all of its keys.

    >>> from streamshed.network import Builder
    >>> network = (
    ...     Builder("n").source("s", "k INT", key="k").source("t", "k INT, x INT", key="k")
    ...     .filter("f", "s", "k > 0").join("j", ["f", "t"], ["k"], 1.0).output("o", "j").output("p", "f").build()
    ... )
    >>> key_shares(network, [Drop("s->f", 0.5), Drop("f->j", 0.5)])
    {'s->f': 1.0, 't->j': 1.0, 'f->j': 0.5, 'f->p': 0.5}
    """
    places, protects = key_places(network), protecting(network)
    keeps: dict[str, float] = {}
    for drop in drops:
        if drop.where is None or without_protection(parse(drop.where), protects) is None:
            keeps[drop.at] = keeps.get(drop.at, 1.0) * drop.keep
    left: dict[str, float] = {source.name: 1.0 for source in network.sources}

    def on_arc(on: str) -> float:
        share = left[on.partition("->")[0]]
        return share * keeps.get(on, 1.0) if on in places else share

    for box in network.order:
        left[box.name] = max(map(on_arc, network.arcs_into(box.name)))
    return {on: left[on.partition("->")[0]] for on in places}
