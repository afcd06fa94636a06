"""The one control loop: Samples in, Plans out. Pure: no clock, no disk, no Spark.

Sample ─► QueryLoad (workload, batch_cost, arrival_rate) ─► overload: how much fits ─► arbiter ─► policy ─► Plan
                                                        └► time_budget: how long ─►─────┘
"""

from streamshed.loop.arbiter import Arbiter, Limits, Steps, hopeless
from streamshed.loop.batch_cost import AffineCost, CostModel, MeanCost
from streamshed.loop.controller import Controller, Policy
from streamshed.loop.keep_response import KeepResponse
from streamshed.loop.overload import OverloadDetector
from streamshed.loop.query_load import QueryLoad
from streamshed.loop.time_budget import TimeBudget

__all__ = [
    "AffineCost",
    "Arbiter",
    "Controller",
    "CostModel",
    "KeepResponse",
    "Limits",
    "MeanCost",
    "OverloadDetector",
    "Policy",
    "QueryLoad",
    "Steps",
    "TimeBudget",
    "hopeless",
]
