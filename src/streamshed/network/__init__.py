"""What runs: query networks, their QoS, and what they cost.

Builder, load_yaml …  ─►  Network  ─►  Catalog  ─►  load coefficients, load, limit
"""

from streamshed.network.builder import Builder
from streamshed.network.catalog import Catalog
from streamshed.network.graph import LoadAware, Network
from streamshed.network.qos import QoS

__all__ = ["Builder", "Catalog", "LoadAware", "Network", "QoS"]
