"""Load shedding for Apache Spark Structured Streaming.

import streamshed as ss
kept = ss.shed(events, latency="4 seconds", arrived="timestamp", key="user_id")
running = ss.run(spark, ss.load_network("triage.yaml"), policy="lsrm-semantic", latency="4 seconds")
"""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from streamshed.errors import EnvironmentProblem, InvalidArgument, StreamshedError
from streamshed.records import Drop, Mode, Plan

if TYPE_CHECKING:
    from streamshed.network.spec.yaml import load as load_network
    from streamshed.quality.report import Report
    from streamshed.spark.drop_in.shed import shed
    from streamshed.spark.drop_in.shedder import Shedder
    from streamshed.spark.handle import Handle
    from streamshed.spark.handles import handle, load_shedder, shedder
    from streamshed.spark.load_aware.load_aware import load_aware
    from streamshed.spark.load_aware.load_shedder import LoadShedder
    from streamshed.spark.network.real_time_network import RealTimeNetwork
    from streamshed.spark.network.run import RunningNetwork, run
    from streamshed.spark.real_time.ladder_shedder import LadderShedder

try:
    __version__ = version("streamshed")
except PackageNotFoundError:  # run from a source tree that is not installed
    __version__ = "0+unknown"

__all__ = [
    "Drop",
    "EnvironmentProblem",
    "Handle",
    "InvalidArgument",
    "LadderShedder",
    "LoadShedder",
    "Mode",
    "Plan",
    "RealTimeNetwork",
    "Report",
    "RunningNetwork",
    "Shedder",
    "StreamshedError",
    "__version__",
    "handle",
    "load_aware",
    "load_network",
    "load_shedder",
    "run",
    "shed",
    "shedder",
]

# Spark and NumPy are loaded when they are first needed: the core and the simulator work without it.
_LATER = {
    "Handle": ("streamshed.spark.handle", "Handle"),
    "handle": ("streamshed.spark.handles", "handle"),
    "Report": ("streamshed.quality.report", "Report"),
    "RealTimeNetwork": ("streamshed.spark.network.real_time_network", "RealTimeNetwork"),
    "LadderShedder": ("streamshed.spark.real_time.ladder_shedder", "LadderShedder"),
    "LoadShedder": ("streamshed.spark.load_aware.load_shedder", "LoadShedder"),
    "RunningNetwork": ("streamshed.spark.network.run", "RunningNetwork"),
    "Shedder": ("streamshed.spark.drop_in.shedder", "Shedder"),
    "load_aware": ("streamshed.spark.load_aware.load_aware", "load_aware"),
    "load_network": ("streamshed.network.spec.yaml", "load"),
    "load_shedder": ("streamshed.spark.handles", "load_shedder"),
    "run": ("streamshed.spark.network.run", "run"),
    "shed": ("streamshed.spark.drop_in.shed", "shed"),
    "shedder": ("streamshed.spark.handles", "shedder"),
}


def __getattr__(name: str) -> Any:
    if name == "QualityReport":
        name = "Report"
        import_module("streamshed.quality.former_names").warn_of("QualityReport", "Report")
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _LATER[name]
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
