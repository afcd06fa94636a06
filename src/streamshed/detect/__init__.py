"""When to shed, and how much fits: cost models and the overload detector."""

from streamshed.detect.cost import AffineCost, CostModel, MeanCost
from streamshed.detect.overload import OverloadDetector
from streamshed.detect.response import KeepResponse

__all__ = ["AffineCost", "CostModel", "KeepResponse", "MeanCost", "OverloadDetector"]
