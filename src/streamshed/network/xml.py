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

XML is hostile until parsed: document types, entities and external references are refused.
"""

from __future__ import annotations

from typing import Any

from defusedxml import ElementTree
from defusedxml.common import DefusedXmlException

from streamshed.errors import InvalidArgument
from streamshed.network.graph import InvalidNetwork, Network, Problem
from streamshed.network.spec import read

_MAX_CHARACTERS = 4_000_000
_TYPES = {
    "long": "LONG", "int": "INT", "integer": "INT", "short": "SHORT", "byte": "BYTE", "double": "DOUBLE",
    "float": "FLOAT", "boolean": "BOOLEAN", "string": "STRING",
}  # fmt: skip
_AGGREGATES = {"Average": "avg", "Sum": "sum", "Min": "min", "Max": "max", "Count": "count"}
_INPUTS = ("Input", "InputDevice")
_OUTPUTS = ("Output", "OutputDevice")
_WINDOWS = ("Window", "TimeWindow")
_PARAMETERS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(_INPUTS, ("tuple", "rate", "timestamp")),
    **dict.fromkeys(_OUTPUTS, ("tuple",)),
    **dict.fromkeys(_WINDOWS, ("tuple", "size")),
    **dict.fromkeys(_AGGREGATES, ("tuple", "field", "groupby", "window", "slide", "cost", "selectivity")),
    "Filter": ("tuple", "condition", "cost", "selectivity"),
    "Union": ("tuple", "cost", "selectivity"),
    "Join": ("tuple", "on", "within", "cost", "selectivity"),
}
_DEFAULT_WINDOW = "1 second"


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
        data: dict[str, Any] = {
            "network": self.root.get("name") or "query",
            "sources": {name: self.source(name) for name in self.of(_INPUTS)},
            "boxes": {
                name: self.box(name)
                for name, kind in self.types.items()
                if kind not in (*_INPUTS, *_OUTPUTS, *_WINDOWS)
            },
            "outputs": {name: self.output(name) for name in self.of(_OUTPUTS)},
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
                given[child.get("name") or ""] = child.get("value") or ""
            else:
                self.note(path, "unknown element", child.tag, "next, parameter")
        for parameter in given:
            if kind in _PARAMETERS and parameter not in _PARAMETERS[kind]:
                self.note(f"{path}.{parameter}", "unknown parameter", parameter, ", ".join(_PARAMETERS[kind]))
        if not follows and kind not in _OUTPUTS:
            self.note(path, "a terminal operator must be an output", kind, "a next, or type Output")

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
        return made | self.numbers(name, "rate")

    def box(self, name: str) -> dict[str, Any]:
        given, kind = self.parameters[name], self.types[name]
        inputs = self.inputs(name)
        one = {"input": inputs[0]} if len(inputs) == 1 else {"input": ""} if not inputs else {"inputs": inputs}
        made = self.numbers(name, "cost", "selectivity")
        if kind == "Filter":
            return {"op": "filter", **one, "where": given.get("condition", ""), **made}
        if kind in ("Union", "Join"):
            made = {"op": kind.lower(), "inputs": inputs, **made}
            if kind == "Join":
                made |= {"on": _list(given.get("on", "")), "within": given.get("within", _DEFAULT_WINDOW)}
            return made
        if kind in _AGGREGATES:
            field = given.get("field", "1")
            sizes = [
                self.parameters[above]["size"]
                for above in self.above.get(name, ())
                if self.types[above] in _WINDOWS and "size" in self.parameters[above]
            ]
            made |= {
                "op": "aggregate",
                **one,
                "window": given.get("window", sizes[0] if sizes else _DEFAULT_WINDOW),
                "compute": {field if field.isidentifier() else "rows": f"{_AGGREGATES[kind]}({field})"},
            }
            if "groupby" in given:
                made["by"] = _list(given["groupby"])
            if "slide" in given:
                made["slide"] = given["slide"]
            return made
        return {"op": kind, **one}

    def output(self, name: str) -> dict[str, Any]:
        inputs = self.inputs(name)
        if len(inputs) != 1:
            self.note(f"operator.{name}", "an output has one input", inputs, "one operator with this as next")
        return {"input": inputs[0] if inputs else ""}

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
