"""The policies for networks, by name."""

from __future__ import annotations

from collections.abc import Callable

from streamshed.errors import InvalidArgument
from streamshed.policies.admission import InputCostTop, InputCostUniform, InputRandom, InputUniform
from streamshed.policies.contract import NetworkPolicy
from streamshed.policies.keep_all import NoShedding
from streamshed.policies.latency import Latency
from streamshed.policies.optimal import Optimal
from streamshed.policies.road_map import RandomRoadMap
from streamshed.policies.road_map_semantic import SemanticRoadMap

NETWORK_POLICIES: dict[str, Callable[[int], NetworkPolicy]] = {
    "input-random": InputRandom,
    "input-cost-top": lambda seed: InputCostTop(),
    "input-uniform": lambda seed: InputUniform(),
    "input-cost-uniform": lambda seed: InputCostUniform(),
    "lsrm-random": lambda seed: RandomRoadMap(),
    "lsrm-semantic": lambda seed: SemanticRoadMap(),
    "optimal": lambda seed: Optimal(),
    "latency": lambda seed: Latency(),
}
"""Each makes a policy from a seed, which most do not need."""

BASELINES: dict[str, Callable[[int], NetworkPolicy]] = {
    "none": lambda seed: NoShedding(),
    "random": lambda seed: InputCostUniform(),
}
"""What the others are compared with: no shedding at all, and the same share of every source's rows."""


def live_policy(name: str, seed: int = 0) -> NetworkPolicy:
    """The policy of a name, base lines included.

    >>> live_policy("none").name
    'none'
    """
    if name in BASELINES:
        return BASELINES[name](seed)
    if name not in NETWORK_POLICIES:
        hint = ", ".join([*BASELINES, *NETWORK_POLICIES])
        raise InvalidArgument("no such policy", got=repr(name), hint=hint)
    return network_policy(name, seed)


def network_policy(name: str, seed: int = 0) -> NetworkPolicy:
    """The policy of a name.

    >>> network_policy("optimal").name
    'optimal'
    >>> network_policy("best")
    Traceback (most recent call last):
    ...
    streamshed.errors.InvalidArgument: no such policy
      got:  'best'
      hint: input-random, input-cost-top, input-uniform, input-cost-uniform, lsrm-random, ...
    """
    if name not in NETWORK_POLICIES:
        raise InvalidArgument("no such policy", got=repr(name), hint=", ".join(NETWORK_POLICIES))
    return NETWORK_POLICIES[name](seed)
