"""`handle`: from whatever the user has at hand to the handle of what sheds there."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from streamshed.errors import InvalidArgument
from streamshed.spark.handle import Handle
from streamshed.spark.monitor import SessionMonitor, Watched


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


def _handle_of(stream: Watched) -> Handle:
    """A query of a network is watched as one stream; the handle is the network's."""
    found = stream if isinstance(stream, Handle) else getattr(stream, "handle", None)
    assert isinstance(found, Handle)
    return found


def _distinct(streams: list[Watched]) -> list[Handle]:
    return list({id(each): each for each in map(_handle_of, streams)}.values())
