"""Load shedding for Apache Spark Structured Streaming.

import streamshed as ss
kept = ss.shed(events, latency="4 seconds", arrived="timestamp", key="user_id")
running = ss.run(spark, ss.load_network("triage.yaml"), policy="lsrm-semantic", latency="4 seconds")
"""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from streamshed.errors import EnvironmentProblem, InvalidArgument, StreamshedError
from streamshed.records import Drop, Mode, Plan, QualityReport

if TYPE_CHECKING:
    from streamshed.network.spec import load as load_network
    from streamshed.spark.handle import Handle
    from streamshed.spark.handles import handle
    from streamshed.spark.load_aware import load_aware, load_shedder
    from streamshed.spark.load_shedder import LoadShedder
    from streamshed.spark.runtime import RunningNetwork, run
    from streamshed.spark.shed import shed, shedder
    from streamshed.spark.shedder import Shedder

try:
    __version__ = version("streamshed")
except PackageNotFoundError:  # run from a source tree that is not installed
    __version__ = "0+unknown"

__all__ = [
    "Drop",
    "EnvironmentProblem",
    "Handle",
    "InvalidArgument",
    "LoadShedder",
    "Mode",
    "Plan",
    "QualityReport",
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

# Spark is loaded when it is first needed: the core and the simulator work without it.
_LATER = {
    "Handle": ("streamshed.spark.handle", "Handle"),
    "handle": ("streamshed.spark.handles", "handle"),
    "LoadShedder": ("streamshed.spark.load_shedder", "LoadShedder"),
    "RunningNetwork": ("streamshed.spark.runtime", "RunningNetwork"),
    "Shedder": ("streamshed.spark.shedder", "Shedder"),
    "load_aware": ("streamshed.spark.load_aware", "load_aware"),
    "load_network": ("streamshed.network.spec", "load"),
    "load_shedder": ("streamshed.spark.load_aware", "load_shedder"),
    "run": ("streamshed.spark.runtime", "run"),
    "shed": ("streamshed.spark.shed", "shed"),
    "shedder": ("streamshed.spark.shed", "shedder"),
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _LATER[name]
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
