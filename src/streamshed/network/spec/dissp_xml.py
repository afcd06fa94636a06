"""Networks in DISSP's XML (its Listings 4.1 and 4.2), read into the same object as YAML.

A document has `schema` elements with a `field` for each column, and `operator` elements with a name, a
type, a `next` for each operator that gets its rows, and parameters:

    <query name="cpu">
      <schema name="load"> <field type="long" name="ts"/> <field type="double" name="cpu"/> … </schema>
      <operator name="MyInput" type="Input">
        <next name="MyAvgCpu"/> <parameter name="tuple" value="load"/> <parameter name="rate" value="400"/>
      </operator>
      <operator name="MyAvgCpu" type="Average">
        <next name="MyOutput"/> <parameter name="field" value="cpu"/> <parameter name="groupby" value="idx"/>
      </operator>
      <operator name="MyOutput" type="Output"/>
    </query>

An operator without a `next` is a terminal, and its rows are a result of the query: one that is no Output itself
gets an output named after it, `MyAvgCpu_output`. What DISSP leaves open is filled in: a filter of unknown
selectivity passes half of its rows (DISSP 4.4, load-aware partitioning), and an input above a window or a join
has a watermark, without which Spark keeps their state for ever.

XML is hostile until parsed: document types, entities and external references are refused.
"""

from __future__ import annotations

from typing import Any

from defusedxml import ElementTree
from defusedxml.common import DefusedXmlException

from streamshed.errors import InvalidArgument
from streamshed.network.graph import InvalidNetwork, Network, Problem
from streamshed.network.spec.yaml import read

_MAX_CHARACTERS = 4_000_000
_TYPES = {
    "long": "LONG", "int": "INT", "integer": "INT", "short": "SHORT", "byte": "BYTE", "double": "DOUBLE",
    "float": "FLOAT", "boolean": "BOOLEAN", "string": "STRING",
}  # fmt: skip
_AGGREGATES = {
    "Average": "avg", "Sum": "sum", "Min": "min", "Max": "max", "Count": "count", "DistinctCount":
    "count_distinct",
}  # fmt: skip
_INPUTS = ("Input", "InputDevice")
_OUTPUTS = ("Output", "OutputDevice")
_TIME_WINDOWS = ("Window", "TimeWindow")
_WINDOWS = (*_TIME_WINDOWS, "CountWindow")
_PARAMETERS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(_INPUTS, ("tuple", "rate", "timestamp", "watermark")),
    **dict.fromkeys(_OUTPUTS, ("tuple",)),
    **dict.fromkeys(_WINDOWS, ("tuple", "size")),
    **dict.fromkeys(_AGGREGATES, ("tuple", "field", "groupby", "window", "slide", "cost", "selectivity")),
    "Filter": ("tuple", "condition", "cost", "selectivity"),
    "Union": ("tuple", "cost", "selectivity"),
    "TopK": ("tuple", "k", "field", "groupby", "window", "cost", "selectivity"),
    "Join": ("tuple", "on", "within", "cost", "selectivity"),
}
_STATEFUL = (*_AGGREGATES, "TopK", "Join")
_DEFAULT_WINDOW = "1 second"
_DEFAULT_WATERMARK = "10 seconds"
_DEFAULT_SELECTIVITY = 0.5
"""Of a filter of which nothing is known; DISSP assumes that it drops half."""


def parse(text: str, file: str = "the query") -> Network:
    """The network that a document describes; `InvalidNetwork` with every problem if it has any."""
    if len(text) > _MAX_CHARACTERS:
        raise InvalidArgument(f"{file} is larger than a query may be", got=f"{len(text)} characters")
    try:
        root = ElementTree.fromstring(text, forbid_dtd=True)
    except DefusedXmlException as error:
        hint = "no document type, no entities, no external references"
        raise InvalidArgument(f"{file} is refused", got=type(error).__name__, hint=hint) from error
    except ElementTree.ParseError as error:
        raise InvalidArgument(f"{file} is not XML", got=str(error)) from error
    return _Document(root, file).network()


class _Document:
    """Turns the elements into the plain data that the YAML reader takes."""

    def __init__(self, root: Any, file: str) -> None:
        self.root = root
        self.file = file
        self.problems: list[Problem] = []
        self.schemas: dict[str, str] = {}
        self.types: dict[str, str] = {}
        self.parameters: dict[str, dict[str, str]] = {}
        self.above: dict[str, list[str]] = {}
        self.terminals: list[str] = []
        """Operators without a `next` that are no outputs."""

    def network(self) -> Network:
        for element in self.root:
            if element.tag == "schema":
                self.schema(element)
            elif element.tag == "operator":
                self.operator(element)
            else:
                self.note(str(element.tag), "unknown element", element.tag, "schema, operator")
        for element in self.root.iter("next"):
            if element.get("name") not in self.types:
                self.note("next", "no such operator", element.get("name"), ", ".join(self.types))
        loop = self.loop()
        if loop:
            self.note(f"operator.{loop[0]}", "the operators form a loop", " -> ".join(loop), "no loops")
            raise InvalidNetwork(self.problems, self.file)
        data: dict[str, Any] = {
            "network": self.root.get("name") or "query",
            "sources": {name: self.source(name) for name in self.of(_INPUTS)},
            "boxes": {
                name: self.box(name)
                for name, kind in self.types.items()
                if kind not in (*_INPUTS, *_OUTPUTS, *_WINDOWS)
            },
            "outputs": {name: self.output(name) for name in self.of(_OUTPUTS)}
            | {self.output_of(name): self.terminal(name) for name in self.terminals},
        }
        try:
            network = read(data, self.file)
        except InvalidNetwork as error:
            unknown = {f"boxes.{name}.op" for name, kind in self.types.items() if kind not in _PARAMETERS}
            self.problems.extend(problem for problem in error.problems if problem.path not in unknown)
        if self.problems:
            raise InvalidNetwork(self.problems, self.file)
        return network

    def note(self, path: str, problem: str, got: object, allowed: str | None = None) -> None:
        self.problems.append(Problem(path, problem, repr(got), allowed))

    def loop(self) -> list[str]:
        """Operators that feed each other in a circle, the first one again at the end; empty if there are none."""
        left = {name: {above for above in self.above.get(name, ()) if above in self.types} for name in self.types}
        while True:
            done = {name for name, above in left.items() if not above & left.keys()}
            if not done:
                break
            left = {name: above for name, above in left.items() if name not in done}
        way: list[str] = []
        name = next(iter(left), "")
        while name and name not in way:
            way.append(name)
            name = next(above for above in sorted(left[name]) if above in left)
        return [name, *reversed(way[way.index(name) :])] if name else []

    def of(self, kinds: tuple[str, ...]) -> list[str]:
        return [name for name, kind in self.types.items() if kind in kinds]

    def schema(self, element: Any) -> None:
        name = element.get("name") or ""
        columns = []
        for field in element:
            kind = _TYPES.get((field.get("type") or "").lower())
            if field.tag != "field" or kind is None:
                self.note(f"schema.{name}", "not a field", field.get("type") or field.tag, ", ".join(_TYPES))
            else:
                columns.append(f"{field.get('name')} {kind}")
        if not name or name in self.schemas:
            self.note(f"schema.{name}", "the name is missing or taken", name)
        self.schemas[name] = ", ".join(columns)

    def operator(self, element: Any) -> None:
        name, kind = element.get("name") or "", element.get("type") or ""
        path = f"operator.{name}"
        if not name or name in self.types:
            self.note(path, "the name is missing or taken", name)
            return
        if kind not in _PARAMETERS:
            self.note(f"{path}.type", "unknown type", kind, ", ".join(_PARAMETERS))
        self.types[name] = kind
        given = self.parameters[name] = {}
        follows = 0
        for child in element:
            if child.tag == "next":
                follows += 1
                self.above.setdefault(child.get("name") or "", []).append(name)
            elif child.tag == "parameter":
                parameter = child.get("name") or ""
                if parameter in given:
                    self.note(f"{path}.{parameter}", "the parameter is given twice", child.get("value"), "one")
                given[parameter] = child.get("value") or ""
            else:
                self.note(path, "unknown element", child.tag, "next, parameter")
        for parameter in given:
            if kind in _PARAMETERS and parameter not in _PARAMETERS[kind]:
                self.note(f"{path}.{parameter}", "unknown parameter", parameter, ", ".join(_PARAMETERS[kind]))
        if not follows and kind not in _OUTPUTS:
            self.terminals.append(name)

    def inputs(self, name: str) -> list[str]:
        """What feeds an operator, seen through windows, which are no boxes of their own here."""
        found: list[str] = []
        pending = list(self.above.get(name, ()))
        for above in pending:
            if self.types[above] in _WINDOWS and len(pending) < 1000:
                pending.extend(self.above.get(above, ()))
            elif self.types[above] not in _WINDOWS:
                found.append(above)
        return found

    def source(self, name: str) -> dict[str, Any]:
        given = self.parameters[name]
        schema = self.schemas.get(given.get("tuple", ""))
        if schema is None:
            self.note(f"operator.{name}.tuple", "no such schema", given.get("tuple"), ", ".join(self.schemas))
        made: dict[str, Any] = {"schema": schema or "ts LONG"}
        stamp = given.get("timestamp", "ts")
        if "timestamp" in given or f"{stamp} " in made["schema"]:
            made["arrived"] = stamp
        if "watermark" in given:
            made["watermark"] = given["watermark"]
        elif "arrived" in made and self.feeds_state(name):
            made["watermark"] = _DEFAULT_WATERMARK
        return made | self.numbers(name, "rate")

    def feeds_state(self, name: str) -> bool:
        """Whether rows of an operator reach a window or a join."""
        seen = {name}
        grown = True
        while grown:
            below = {head for head, tails in self.above.items() if not seen.isdisjoint(tails)} - seen
            seen |= below
            grown = bool(below)
        return any(self.types.get(each) in _STATEFUL for each in seen)

    def box(self, name: str) -> dict[str, Any]:
        given, kind = self.parameters[name], self.types[name]
        inputs = self.inputs(name)
        one = {"input": inputs[0]} if len(inputs) == 1 else {"input": ""} if not inputs else {"inputs": inputs}
        made = self.numbers(name, "cost", "selectivity")
        if kind == "Filter":
            made = {"selectivity": _DEFAULT_SELECTIVITY} | made
            return {"op": "filter", **one, "where": given.get("condition", ""), **made}
        if kind in ("Union", "Join"):
            made = {"op": kind.lower(), "inputs": inputs, **made}
            if kind == "Join":
                made |= {"on": _list(given.get("on", "")), "within": given.get("within", _DEFAULT_WINDOW)}
            return made
        if kind in _AGGREGATES:
            field = given.get("field", "1")
            made |= one | {"compute": {field if field.isidentifier() else "rows": f"{_AGGREGATES[kind]}({field})"}}
            rows = self.size(name, ("CountWindow",))
            if rows is not None and "window" not in given:
                made |= {"op": "count_window", "rows": self.whole(name, "size", rows)}
            else:
                made |= {"op": "aggregate", "window": self.window(name)}
                if "slide" in given:
                    made["slide"] = given["slide"]
        if kind == "TopK":
            made |= one | {
                "op": "top_k",
                "k": self.whole(name, "k", given.get("k", "10")),
                "field": given.get("field", ""),
                "window": self.window(name),
            }
        if "op" in made:
            if "groupby" in given:
                made["by"] = _list(given["groupby"])
            return made
        return {"op": kind, **one}

    def size(self, name: str, kinds: tuple[str, ...]) -> str | None:
        """What the window operator in front of an operator says."""
        for above in self.above.get(name, ()):
            if self.types[above] in kinds and "size" in self.parameters[above]:
                return self.parameters[above]["size"]
        return None

    def window(self, name: str) -> str:
        return self.parameters[name].get("window") or self.size(name, _TIME_WINDOWS) or _DEFAULT_WINDOW

    def whole(self, name: str, parameter: str, text: str) -> int:
        if not text.isdigit():
            self.note(f"operator.{name}.{parameter}", "not a whole number", text)
            return 1
        return int(text)

    def output(self, name: str) -> dict[str, Any]:
        inputs = self.inputs(name)
        if len(inputs) != 1:
            self.note(f"operator.{name}", "an output has one input", inputs, "one operator with this as next")
        return {"input": inputs[0] if inputs else ""}

    def output_of(self, terminal: str) -> str:
        """A name for the output of a terminal operator that no operator has."""
        name = f"{terminal}_output"
        while name in self.types:
            name += "_"
        return name

    def terminal(self, name: str) -> dict[str, Any]:
        if self.types[name] not in _WINDOWS:
            return {"input": name}
        return self.output(name)  # a window is no box here: what enters it is what comes out

    def numbers(self, name: str, *parameters: str) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for parameter in parameters:
            if parameter in self.parameters[name]:
                text = self.parameters[name][parameter]
                try:
                    made[parameter] = float(text)
                except ValueError:
                    self.note(f"operator.{name}.{parameter}", "not a number", text)
        return made


def _list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
