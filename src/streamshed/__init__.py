"""Load shedding for Apache Spark Structured Streaming.

import streamshed as ss
kept = ss.shed(events, latency="4 seconds", arrived="timestamp", key="user_id")
running = ss.run(spark, ss.load_network("triage.yaml"), policy="lsrm-semantic", latency="4 seconds")
"""

from typing import TYPE_CHECKING, Any

from streamshed.errors import EnvironmentProblem, InvalidArgument, StreamshedError
from streamshed.records import Drop, Mode, Plan, QualityReport

if TYPE_CHECKING:
    from streamshed.network.spec import load as load_network
    from streamshed.spark.load_aware import load_aware, load_shedder
    from streamshed.spark.runtime import run
    from streamshed.spark.shed import Shedder, shed, shedder

__all__ = [
    "Drop",
    "EnvironmentProblem",
    "InvalidArgument",
    "Mode",
    "Plan",
    "QualityReport",
    "Shedder",
    "StreamshedError",
    "load_aware",
    "load_network",
    "load_shedder",
    "run",
    "shed",
    "shedder",
]


def __getattr__(name: str) -> Any:
    # Spark is loaded when it is first needed: the core and the simulator work without it.
    if name in ("Shedder", "shed", "shedder"):
        from streamshed.spark import shed as module

        return getattr(module, name)
    if name in ("load_aware", "load_shedder"):
        from streamshed.spark import load_aware as operator

        return getattr(operator, name)
    if name == "run":
        from streamshed.spark.runtime import run

        return run
    if name == "load_network":
        from streamshed.network.spec import load

        return load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
