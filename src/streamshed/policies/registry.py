"""The policies for networks, by name."""

from __future__ import annotations

from collections.abc import Callable

from streamshed.errors import InvalidArgument
from streamshed.policies.admission import InputCostTop, InputCostUniform, InputRandom, InputUniform
from streamshed.policies.aurora_greedy import AuroraGreedy
from streamshed.policies.contract import NetworkPolicy
from streamshed.policies.fair_network import Fair
from streamshed.policies.keep_all import KeepAll
from streamshed.policies.latency import Latency
from streamshed.policies.optimal import Optimal
from streamshed.policies.random_points import RandomPoints
from streamshed.policies.road_map.random import RandomRoadMap
from streamshed.policies.road_map.semantic import SemanticRoadMap

NETWORK_POLICIES: dict[str, Callable[[int], NetworkPolicy]] = {
    "none": lambda seed: KeepAll(),
    "random": RandomPoints,
    "input-random": InputRandom,
    "input-cost-top": lambda seed: InputCostTop(),
    "input-uniform": lambda seed: InputUniform(),
    "input-cost-uniform": lambda seed: InputCostUniform(),
    "aurora-greedy": lambda seed: AuroraGreedy(),
    "lsrm-random": lambda seed: RandomRoadMap(),
    "lsrm-semantic": lambda seed: SemanticRoadMap(),
    "optimal": lambda seed: Optimal(),
    "latency": lambda seed: Latency(),
    "fair": lambda seed: Fair(),
}
"""Each makes a policy from a seed, which most do not need. `plan`, `simulate` and `run` take all of them."""


def network_policy(name: str, seed: int = 0) -> NetworkPolicy:
    """The policy of a name.

    >>> network_policy("optimal").name
    'optimal'
    >>> network_policy("best")
    Traceback (most recent call last):
    ...
    streamshed.errors.InvalidArgument: no such policy
      got:  'best'
      hint: none, random, input-random, input-cost-top, input-uniform, input-cost-uniform, ...
    """
    if name not in NETWORK_POLICIES:
        raise InvalidArgument("no such policy", got=repr(name), hint=", ".join(NETWORK_POLICIES))
    return NETWORK_POLICIES[name](seed)
