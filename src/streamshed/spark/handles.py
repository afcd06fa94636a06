"""`handle`: from whatever the user has at hand to the handle of what sheds there."""

from __future__ import annotations

from typing import TypeVar, cast

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from streamshed.errors import InvalidArgument
from streamshed.spark.drop_in.connect_shed import connect_handle
from streamshed.spark.drop_in.shedder import Shedder
from streamshed.spark.handle import Handle
from streamshed.spark.load_aware.load_shedder import LoadShedder
from streamshed.spark.watch.query_watch import Watched
from streamshed.spark.watch.session_monitor import SessionMonitor

HandleT = TypeVar("HandleT", Shedder, LoadShedder)


def handle(of: DataFrame | StreamingQuery | str | Handle) -> Handle:
    """The handle of a shed stream, of a load-aware operator or of a running network.

    Parameters
    ----------
    of
        A DataFrame that `shed` or `load_aware` returned, or that was made from one; a streaming query that reads
        one; the name of a shed stream, operator or network; or a handle, which is given back.

    Example
    -------
    ::

        query = ss.shed(events, latency="4 seconds", name="clicks").writeStream.…start()
        ss.handle(query).report()
        ss.handle("clicks").mode = "dry-run"
    """
    if isinstance(of, Handle):
        return of
    remote = connect_handle(of)
    if remote is not None:
        return remote
    if isinstance(of, DataFrame):
        streams = SessionMonitor.streams_behind(of)
    elif isinstance(of, StreamingQuery):
        streams = SessionMonitor.streams_of(of)
    elif isinstance(of, str):
        streams = [each for each in SessionMonitor.all_streams() if _handle_of(each).name == of]
    else:
        raise InvalidArgument(
            "a handle is found by a DataFrame, a streaming query or a name",
            got=type(of).__name__,
            hint="give what shed() or load_aware() returned, a query that reads it, or its name",
        )
    found = _distinct(streams)
    if len(found) == 1:
        return found[0]
    known = ", ".join(each.name for each in _distinct(SessionMonitor.all_streams()))
    if found:
        raise InvalidArgument(
            "there are several handles behind this",
            got=", ".join(each.name for each in found),
            hint="give the DataFrame that one call of shed() or load_aware() returned, or one of these names",
        )
    raise InvalidArgument(
        "nobody sheds there",
        got=repr(of) if isinstance(of, str) else type(of).__name__,
        hint=f"these are known: {known}" if known else "nothing is shed in this process",
    )


def shedder(kept: DataFrame) -> Shedder:
    """The handle of a DataFrame that `shed` returned, or that was made from one.

    Over Spark Connect only of the very one that it returned, with `report()` and `plan` alone. For
    real-time mode ask `handle`.
    """
    remote = connect_handle(kept)
    if remote is not None:
        return cast("Shedder", remote)
    return _only(kept, Shedder, "shed stream", "shed")


def load_shedder(out: DataFrame) -> LoadShedder:
    """The handle of a DataFrame that `load_aware` returned, or that was made from one."""
    return _only(out, LoadShedder, "load-aware operator", "load_aware")


def _only(frame: DataFrame, kind: type[HandleT], thing: str, call: str) -> HandleT:
    """The one handle of a kind behind a DataFrame."""
    streams = SessionMonitor.streams_behind(frame) if isinstance(frame, DataFrame) else []
    handles = [stream for stream in streams if isinstance(stream, kind)]
    if len(handles) == 1:
        return handles[0]
    raise InvalidArgument(
        f"this DataFrame is made of several {thing}s" if handles else f"this is not a {thing}",
        got=", ".join(each.name for each in handles) or type(frame).__name__,
        hint=f"give the DataFrame that one call of {call}() returned, or one made from it",
    )


def _handle_of(stream: Watched) -> Handle:
    """A query of a network is watched as one stream; the handle is the network's."""
    found = stream if isinstance(stream, Handle) else getattr(stream, "handle", None)
    assert isinstance(found, Handle)
    return found


def _distinct(streams: list[Watched]) -> list[Handle]:
    return list({id(each): each for each in map(_handle_of, streams)}.values())
