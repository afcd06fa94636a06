"""`--read NAME=FORMAT:PATH`, `--write NAME=FORMAT:PATH`: where rows come from and go to, on the command line.

A query in XML cannot say it, and one in YAML may be tried on other files than its own.

>>> from streamshed.network import Builder
>>> network = Builder("n").source("s", "x INT").filter("f", "s", "x > 0").output("o", "f").build()
>>> bound = bound_to_places(network, ["s=json:in/"], ["o=console"])
>>> bound.sources[0].read, bound.outputs[0].write
({'format': 'json', 'options': {'path': 'in/'}}, {'format': 'console', 'options': {}})
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from streamshed.errors import InvalidArgument
from streamshed.network.graph import Network

_FILES = ("json", "csv", "parquet", "orc")
_READ = (*_FILES, "text")
_WRITE = (*_FILES, "console", "noop")
_WITHOUT_PATH = ("console", "noop")

Place = dict[str, Any]
"""A format and its options, as a spec's `read` and `write` have them."""


def bound_to_places(network: Network, reads: Sequence[str], writes: Sequence[str]) -> Network:
    """The network with the sources and outputs that are named bound to these places."""
    sources = {source.name: source for source in network.sources}
    read = _places("--read", reads, "source", sources, _READ)
    write = _places("--write", writes, "output", [output.name for output in network.outputs], _WRITE)
    for name, place in read.items():
        if (sources[name].parse is not None) != (place["format"] == "text"):
            raise InvalidArgument(
                f"--read {name}: text is for sources that have a `parse`, and these take nothing else",
                got=place["format"],
                hint=", ".join(_FILES) if sources[name].parse is None else "text",
            )
    return replace(
        network,
        sources=tuple(replace(source, read=read.get(source.name, source.read)) for source in network.sources),
        outputs=tuple(replace(output, write=write.get(output.name, output.write)) for output in network.outputs),
    )


def _places(
    option: str, given: Sequence[str], kind: str, names: Collection[str], formats: Sequence[str]
) -> dict[str, Place]:
    places: dict[str, Place] = {}
    for binding in given:
        name, equals, place = binding.partition("=")
        format, _, path = place.partition(":")
        format = format.lower()
        if not equals or not format:
            raise InvalidArgument(
                f"{option} needs NAME=FORMAT:PATH",
                got=repr(binding),
                hint=f"such as {option} {next(iter(names))}=json:PATH",
            )
        if name not in names:
            raise InvalidArgument(
                f"{option}: the network has no such {kind}", got=repr(name), hint=", ".join(names)
            )
        if name in places:
            raise InvalidArgument(f"{option} is given twice for the {kind} {name!r}", got=repr(binding))
        if format not in formats:
            raise InvalidArgument(
                f"{option} {name}: no such format",
                got=repr(format),
                hint=f"{', '.join(formats)}; any other of Spark's with its options in YAML",
            )
        if bool(path) == (format in _WITHOUT_PATH):
            wanted = f"{name}={format}" if path else f"{name}={format}:PATH"
            raise InvalidArgument(
                f"{option} {name}: {format} {'takes no' if path else 'needs a'} path",
                got=repr(binding),
                hint=f"{option} {wanted}",
            )
        places[name] = {"format": format, "options": {"path": path} if path else {}}
    return places
