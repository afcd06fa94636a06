"""Networks as YAML: read with all problems reported at once, and written so that reading gives it back.

    load("triage.yaml") ─► Network          parse(text) ─► Network          dump(network) ─► text

YAML from outside is not trusted: only plain data, no tags, no aliases, no duplicate keys, at most 4 MB.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import yaml

from streamshed.durations import seconds
from streamshed.errors import InvalidArgument
from streamshed.network.builder import declared, parsing
from streamshed.network.check import Draft, check
from streamshed.network.expressions import expression as expressions
from streamshed.network.expressions.analysis import Inverse
from streamshed.network.expressions.expression import Expression
from streamshed.network.graph import (
    BOXES,
    DEFAULT_COST,
    Aggregate,
    Box,
    Column,
    CountWindow,
    Filter,
    InvalidNetwork,
    Join,
    LoadAware,
    Map,
    Network,
    Output,
    Problem,
    Source,
    TopK,
    Udf,
    Union,
    ddl,
    schema_of,
)
from streamshed.network.qos import Graph, Histogram, LatencyGraph, LossGraph, QoS, ValueGraph

T = TypeVar("T")
_MAX_BYTES = 4_000_000
_MAX_BRACKETS = 50
_TRUE: Expression = expressions.Literal(True)

_TOP = ("network", "sources", "boxes", "outputs", "capacity", "headroom")
_SOURCE = ("schema", "arrived", "rate", "read", "parse", "watermark", "protect", "protected", "key", "values")
_OUTPUT = ("input", "write", "qos", "weight", "minimum_sic", "sic")
_QOS = ("loss", "latency", "value", "histogram")
_ANY_BOX = ("op", "cost", "selectivity")
_BOX = {
    "filter": ("input", "where"),
    "map": ("input", "select", "inverse"),
    "union": ("inputs",),
    "join": ("inputs", "on", "within"),
    "aggregate": ("input", "window", "slide", "by", "compute"),
    "count_window": ("input", "rows", "by", "compute"),
    "top_k": ("input", "k", "field", "window", "by"),
    "udf": ("input", "function", "reads", "adds", "load_aware"),
}


def load(path: str | Path) -> Network:
    """The network that a file describes."""
    path = Path(path)
    if path.is_dir():
        raise InvalidArgument(
            "a folder, and not a spec", got=str(path), hint="give the file in it, such as net.yaml"
        )
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise InvalidArgument(f"{path} is larger than a spec may be", got=f"{path.stat().st_size} bytes")
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise InvalidArgument("no such file", got=str(path), hint="a network as YAML: docs/networks.md") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"{path} cannot be read", got=str(error)) from error
    if path.suffix.lower() == ".xml":
        from streamshed.network.spec import dissp_xml as xml

        return xml.parse(text, str(path))
    return parse(text, str(path))


def parse(text: str, file: str = "the spec") -> Network:
    """The network that YAML text describes; `InvalidNetwork` with every problem if it has any."""
    if len(text) > _MAX_BYTES:
        raise InvalidArgument(f"{file} is larger than a spec may be", got=f"{len(text)} characters")
    depth = deepest = 0
    for bracket in re.finditer(r"[][{}]", text):  # the parser's time grows with the square of the depth
        depth += 1 if bracket[0] in "[{" else -1
        deepest = max(deepest, depth)
    if deepest > _MAX_BRACKETS:
        raise InvalidArgument(f"{file} is not plain YAML", got=f"nested too deeply: {deepest} open brackets")
    try:
        data = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise InvalidArgument(f"{file} is not plain YAML", got=_where(error)) from error
    except RecursionError as error:
        raise InvalidArgument(f"{file} is not plain YAML", got="nested too deeply") from error
    return read(data, file)


def read(data: Any, file: str = "the spec") -> Network:
    """The network that plain data, such as parsed YAML, describes."""
    return _Reader().network(data, file)


def _where(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    return f"{problem} (line {mark.line + 1}, column {mark.column + 1})" if mark else str(problem)


_LARGEST = 1e300
"""A whole number beyond this is no floating-point number."""


class _TooLong(float):
    """A whole number of more digits than Python reads: infinite, and shown by its length."""

    digits: int

    def __new__(cls, text: str) -> _TooLong:
        made = super().__new__(cls, math.inf)
        made.digits = sum(map(str.isdigit, text))
        return made

    def __repr__(self) -> str:
        return f"{self.digits} digits"


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Plain data only. Unlike YAML 1.1, `on` is a word and `2e-6` a number."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()
            raise yaml.composer.ComposerError(None, None, "aliases are not allowed", event.start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(None, None, "a key must be text", key.start_mark)
            if key.value in seen:
                problem = f"the key {key.value!r} is given twice"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen.add(key.value)
        return {key.value: self.construct_object(value, deep=True) for key, value in node.value}


def _construct_map(loader: _Loader, node: Any) -> dict[Any, Any]:
    return loader.construct_mapping(node)


def _construct_int(loader: _Loader, node: Any) -> float:
    try:
        whole: int = loader.construct_yaml_int(node)
    except ValueError:
        return _TooLong(node.value)
    return whole


_Loader.add_constructor("tag:yaml.org,2002:map", _construct_map)
_Loader.add_constructor("tag:yaml.org,2002:int", _construct_int)
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":bool", ":timestamp", ":merge"))]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), [*"tTfF"]
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?(?:\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), [*"-+0123456789."]
)


class _Reader:
    """Reads what can be read and notes every problem on the way."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.broken: set[str] = set()

    def network(self, data: Any, file: str) -> Network:
        top = self.mapping("(top level)", data, _TOP, ("network", "sources", "outputs"), prefix="")
        name = self.text("network", top.get("network", "unnamed"))
        sources = tuple(self.each("sources", top.get("sources", {}), self.source))
        boxes = tuple(self.each("boxes", top.get("boxes", {}), self.box))
        outputs = tuple(self.each("outputs", top.get("outputs", {}), self.output))
        capacity = None if top.get("capacity") is None else self.number("capacity", top["capacity"], 1.0)
        headroom = self.number("headroom", top.get("headroom", 0.9), 0.9)
        draft = Draft(sources, boxes, outputs, capacity, headroom, frozenset(self.broken), name)
        told = {problem.path for problem in self.problems}
        self.problems.extend(problem for problem in check(draft) if problem.path not in told)
        if self.problems:
            raise InvalidNetwork(self.problems, file)
        return Network(name, sources, boxes, outputs, capacity=capacity, headroom=headroom)

    # ── nodes ────────────────────────────────────────────────────────────────────────────────────

    def each(self, path: str, value: Any, read: Callable[[str, str, Any], T]) -> list[T]:
        if not isinstance(value, Mapping):
            self.note(path, "not a mapping of names", value, "name: {…}")
            return []
        return [self.node(f"{path}.{name}", name, one, read) for name, one in value.items()]

    def node(self, path: str, name: str, value: Any, read: Callable[[str, str, Any], T]) -> T:
        before = len(self.problems)
        made = read(path, name, value)
        if len(self.problems) > before:
            self.broken.add(name)
        return made

    def source(self, path: str, name: str, value: Any) -> Source:
        given = self.mapping(path, value, _SOURCE, ("schema",))
        protect = given.get("protect")
        values = {}
        for field, spread in self.mapping(f"{path}.values", given.get("values", {})).items():
            found = self.histogram(f"{path}.values.{field}", spread)
            if found is not None:
                values[field] = found
        return Source(
            name=name,
            schema=self.columns(f"{path}.schema", given.get("schema", "x DOUBLE")),
            arrived=None if given.get("arrived") is None else self.text(f"{path}.arrived", given["arrived"]),
            rate=self.number(f"{path}.rate", given.get("rate", 1.0), 1.0),
            read=self.options(f"{path}.read", given.get("read")),
            parse=self.attempt(f"{path}.parse", lambda: parsing(given.get("parse")), None),
            watermark=None
            if given.get("watermark") is None
            else self.duration(f"{path}.watermark", given["watermark"]),
            protect=None if protect is None else self.expression(f"{path}.protect", protect),
            protected=self.number(f"{path}.protected", given.get("protected", 0.0), 0.0),
            key=self.name_or_names(f"{path}.key", given.get("key", [])),
            values=values,
        )

    def box(self, path: str, name: str, value: Any) -> Box:
        given = self.mapping(path, value)
        op = given.get("op")
        if op not in BOXES:
            self.note(
                f"{path}.op", "unknown op" if "op" in given else "missing", given.get("op"), ", ".join(BOXES)
            )
            ways = given.get("inputs", given.get("input", ()))
            names = (ways,) if isinstance(ways, str) else tuple(way for way in ways or () if isinstance(way, str))
            return Filter(name=name, inputs=names, where=_TRUE)
        allowed = (*_ANY_BOX, *_BOX[op])
        optional = ("op", "cost", "selectivity", "inverse", "slide", "by", "load_aware")
        given = self.mapping(path, value, allowed, [key for key in allowed if key not in optional])
        common: dict[str, Any] = {
            "name": name,
            "inputs": self.names(f"{path}.inputs", given.get("inputs", []))
            if "inputs" in _BOX[op]
            else (self.text(f"{path}.input", given["input"]),)
            if "input" in given
            else (),
            "cost": self.number(f"{path}.cost", given.get("cost", DEFAULT_COST), DEFAULT_COST),
            "selectivity": self.number(f"{path}.selectivity", given.get("selectivity", 1.0), 1.0),
        }
        made: Callable[[str, Mapping[str, Any], dict[str, Any]], Box] = getattr(self, op)
        return made(path, given, common)

    def filter(self, path: str, given: Mapping[str, Any], common: dict[str, Any]) -> Box:
        return Filter(where=self.expression(f"{path}.where", given.get("where", True)), **common)

    def map(self, path: str, given: Mapping[str, Any], common: dict[str, Any]) -> Box:
        select = self.expressions(f"{path}.select", given.get("select", {}))
        inverse: dict[str, Inverse] = {}
        for column, text in self.mapping(f"{path}.inverse", given.get("inverse", {})).items():
            make = partial(declared, column, str(text))
            found: Inverse | None = self.attempt(f"{path}.inverse.{column}", make, None)
            if found is not None:
                inverse[column] = found
        return Map(select=select, inverse=inverse, **common)

    def union(self, path: str, given: Mapping[str, Any], common: dict[str, Any]) -> Box:
        return Union(**common)

    def join(self, path: str, given: Mapping[str, Any], common: dict[str, Any]) -> Box:
        on = self.name_or_names(f"{path}.on", given.get("on", []))
        return Join(on=on, within=self.duration(f"{path}.within", given.get("within", 1.0)), **common)

    def aggregate(self, path: str, given: Mapping[str, Any], common: dict[str, Any]) -> Box:
        return Aggregate(
            window=self.duration(f"{path}.window", given.get("window", 1.0)),
            slide=None if given.get("slide") is None else self.duration(f"{path}.slide", given["slide"]),
            by=self.name_or_names(f"{path}.by", given.get("by", [])),
            compute=self.expressions(f"{path}.compute", given.get("compute", {})),
            **common,
        )

    def count_window(self, path: str, given: Mapping[str, Any], common: dict[str, Any]) -> Box:
        rows = self.whole(f"{path}.rows", given.get("rows", 1), 1)
        if "selectivity" not in given:
            common["selectivity"] = 1.0 / max(1, rows)
        return CountWindow(
            rows=rows,
            by=self.name_or_names(f"{path}.by", given.get("by", [])),
            compute=self.expressions(f"{path}.compute", given.get("compute", {})),
            **common,
        )

    def top_k(self, path: str, given: Mapping[str, Any], common: dict[str, Any]) -> Box:
        return TopK(
            k=self.whole(f"{path}.k", given.get("k", 1), 1),
            field=self.text(f"{path}.field", given.get("field", "x")),
            window=self.duration(f"{path}.window", given.get("window", 1.0)),
            by=self.name_or_names(f"{path}.by", given.get("by", [])),
            **common,
        )

    def udf(self, path: str, given: Mapping[str, Any], common: dict[str, Any]) -> Box:
        function = self.text(f"{path}.function", given.get("function", ""))
        if "function" in given and not re.fullmatch(r"[\w.]+:[\w.]+", function):
            self.note(f"{path}.function", "not a function's place", function, "package.module:name")
        columns = self.columns(f"{path}.adds", given.get("adds", "added DOUBLE"))
        if len(columns) != 1:
            self.note(f"{path}.adds", "a udf adds one column", given.get("adds"), 'such as "score DOUBLE"')
        return Udf(
            function=function,
            reads=self.name_or_names(f"{path}.reads", given.get("reads", [])),
            adds=columns[0],
            load_aware=None
            if given.get("load_aware") is None
            else self.load_aware(f"{path}.load_aware", given["load_aware"]),
            **common,
        )

    def load_aware(self, path: str, value: Any) -> LoadAware:
        given = self.mapping(path, value, tuple(each.name for each in fields(LoadAware)), ("latency", "key"))
        on_error = given.get("on_error", "fail")
        if on_error not in ("fail", "skip"):
            self.note(f"{path}.on_error", "no such choice", on_error, "fail, skip")
        return LoadAware(
            latency=self.text(f"{path}.latency", given.get("latency", "")),
            key=self.name_or_names(f"{path}.key", given.get("key", [])),
            on_error=str(on_error),
            window=self.whole(f"{path}.window", given.get("window", LoadAware.window), LoadAware.window),
            **{
                name: self.number(f"{path}.{name}", given.get(name, usual), usual)
                for name, usual in (
                    ("tolerance", LoadAware.tolerance),
                    ("epsilon", LoadAware.epsilon),
                    ("delta", LoadAware.delta),
                    ("floor", LoadAware.floor),
                )
            },
        )

    def output(self, path: str, name: str, value: Any) -> Output:
        given = self.mapping(path, value, _OUTPUT, ("input",))
        return Output(
            name=name,
            input=self.text(f"{path}.input", given["input"]) if "input" in given else "",
            qos=self.qos(f"{path}.qos", given.get("qos", {})),
            write=self.options(f"{path}.write", given.get("write")),
            weight=self.number(f"{path}.weight", given.get("weight", 1.0), 1.0),
            minimum_sic=self.number(f"{path}.minimum_sic", given.get("minimum_sic", 0.0), 0.0),
            sic=None if given.get("sic") is None else self.text(f"{path}.sic", given["sic"]),
        )

    def qos(self, path: str, value: Any) -> QoS:
        given = self.mapping(path, value, _QOS)
        graphs = {}
        for key, kind in (("loss", LossGraph), ("latency", LatencyGraph)):
            if given.get(key) is not None:
                graphs[key] = self.graph(f"{path}.{key}", given[key], kind)
        histogram = given.get("histogram")
        return QoS(
            loss=graphs.get("loss"),  # type: ignore[arg-type]
            latency=graphs.get("latency"),  # type: ignore[arg-type]
            value=None if given.get("value") is None else self.value_graph(f"{path}.value", given["value"]),
            histogram=None if histogram is None else self.histogram(f"{path}.histogram", histogram),
        )

    def graph(self, path: str, value: Any, kind: type[Graph]) -> Graph | None:
        points = self.tuples(path, value, (2,), "points [x, utility]")
        return self.attempt(path, lambda: kind.of(points), None) if points else None

    def value_graph(self, path: str, value: Any) -> ValueGraph | None:
        given = self.mapping(path, value, ("field", "intervals"), ("field", "intervals"))
        if "field" not in given or "intervals" not in given:
            return None
        what = "[from, to, utility] or [from, to, utility, utility at to]"
        rows = self.tuples(f"{path}.intervals", given["intervals"], (3, 4), what)
        field = self.text(f"{path}.field", given["field"])
        return self.attempt(f"{path}.intervals", lambda: ValueGraph.of(field, rows), None) if rows else None

    def histogram(self, path: str, value: Any) -> Histogram | None:
        if isinstance(value, Sequence) and not isinstance(value, str):
            numbers = self.numbers(path, value)
            if numbers is None or len(numbers) != 2:
                self.note(path, "not a spread of values", value, "[low, high] or {edges: […], shares: […]}")
                return None
            return self.attempt(path, lambda: Histogram.uniform(*numbers), None)
        given = self.mapping(path, value, ("edges", "shares"), ("edges", "shares"))
        edges = self.numbers(f"{path}.edges", given.get("edges", []))
        shares = self.numbers(f"{path}.shares", given.get("shares", []))
        if not edges or not shares:
            return None
        return self.attempt(path, lambda: Histogram.of(edges, shares), None)

    # ── leaves ───────────────────────────────────────────────────────────────────────────────────

    def note(self, path: str, problem: str, got: object = None, allowed: str | None = None) -> None:
        shown = None if got is None else _short(got)
        self.problems.append(Problem(path, problem, shown, allowed))

    def attempt(self, path: str, make: Callable[[], T], otherwise: T) -> T:
        try:
            return make()
        except InvalidArgument as error:
            self.note(path, error.problem, error.got, error.hint)
            return otherwise

    def mapping(
        self,
        path: str,
        value: Any,
        allowed: Sequence[str] | None = None,
        required: Sequence[str] = (),
        prefix: str | None = None,
    ) -> Mapping[str, Any]:
        if not isinstance(value, Mapping):
            self.note(path, "not a mapping", value, f"keys {', '.join(allowed)}" if allowed else "key: value")
            return {}
        before = f"{path}." if prefix is None else prefix
        for key in value:
            if allowed is not None and key not in allowed:
                self.note(f"{before}{key}", "unknown key", value[key], ", ".join(allowed))
        for key in required:
            if key not in value:
                self.note(f"{before}{key}", "missing")
        return value

    def text(self, path: str, value: Any) -> str:
        if isinstance(value, str) and value:
            return value
        self.note(path, "not text", value, "a name")
        return str(value)

    def names(self, path: str, value: Any) -> tuple[str, ...]:
        if isinstance(value, Sequence) and not isinstance(value, str) and all(isinstance(n, str) for n in value):
            return tuple(value)
        self.note(path, "not a list of names", value, "[name, …]")
        return ()

    def name_or_names(self, path: str, value: Any) -> tuple[str, ...]:
        """Columns: a list of names, or the only one."""
        return (self.text(path, value),) if isinstance(value, str) else self.names(path, value)

    def number(self, path: str, value: Any, otherwise: float) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.note(path, "not a number", value, "a finite number")
            return otherwise
        if isinstance(value, _TooLong):
            self.note(path, "too long a number", value, f"at most {_LARGEST:g}")
            return otherwise
        if isinstance(value, int) and abs(value) > _LARGEST:
            self.note(path, "too large a number", f"{len(str(abs(value)))} digits", f"at most {_LARGEST:g}")
            return otherwise
        if not math.isfinite(value):
            self.note(path, "not a number", value, "a finite number")
            return otherwise
        return float(value)

    def whole(self, path: str, value: Any, otherwise: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            self.note(path, "not a whole number", value, "a whole number")
            return otherwise
        return value

    def numbers(self, path: str, value: Any) -> list[float] | None:
        before = len(self.problems)
        if not isinstance(value, Sequence) or isinstance(value, str):
            self.note(path, "not a list of numbers", value, "[number, …]")
            return None
        found = [self.number(f"{path}[{index}]", one, 0.0) for index, one in enumerate(value)]
        return found if len(self.problems) == before else None

    def tuples(self, path: str, value: Any, lengths: tuple[int, ...], what: str) -> list[list[float]] | None:
        if not isinstance(value, Sequence) or isinstance(value, str) or not value:
            self.note(path, "not a list", value, f"a list of {what}")
            return None
        rows = []
        for index, one in enumerate(value):
            row = self.numbers(f"{path}[{index}]", one)
            if row is not None and len(row) not in lengths:
                self.note(f"{path}[{index}]", "wrong length", one, what)
            elif row is not None:
                rows.append(row)
        return rows if len(rows) == len(value) else None

    def expression(self, path: str, value: Any) -> Expression:
        if isinstance(value, bool | int | float):
            return expressions.Literal(value if isinstance(value, bool) else float(value))
        return self.attempt(path, lambda: expressions.parse(value), _TRUE)

    def expressions(self, path: str, value: Any) -> dict[str, Expression]:
        found = self.mapping(path, value)
        if not found:
            self.note(path, "no columns", value, "column: expression")
        return {column: self.expression(f"{path}.{column}", text) for column, text in found.items()}

    def duration(self, path: str, value: Any) -> float:
        return self.attempt(path, lambda: seconds(value), 1.0)

    def columns(self, path: str, value: Any) -> tuple[Column, ...]:
        return self.attempt(path, lambda: schema_of(value), (Column("x", "DOUBLE"),))

    def options(self, path: str, value: Any) -> Mapping[str, Any] | None:
        return None if value is None else self.mapping(path, value)


def _short(value: object) -> str:
    text = value if isinstance(value, str) and ("'" in value or "[" in value) else repr(value)
    return text if len(text) <= 200 else text[:197] + "..."


# ── writing ──────────────────────────────────────────────────────────────────────────────────────


def dump(network: Network) -> str:
    """YAML that `parse` reads back as an equal network."""
    data: dict[str, Any] = {"network": network.name, "sources": {}, "boxes": {}, "outputs": {}}
    for source in network.sources:
        data["sources"][source.name] = _present(
            schema=ddl(source.schema),
            arrived=source.arrived,
            rate=source.rate,
            read=None if source.read is None else dict(source.read),
            parse=None if source.parse is None else dict(source.parse),
            watermark=source.watermark,
            protect=None if source.protect is None else source.protect.sql(),
            protected=source.protected or None,
            key=list(source.key) or None,
            values={field: _spread(histogram) for field, histogram in source.values.items()} or None,
        )
    for box in network.boxes:
        data["boxes"][box.name] = _box(box)
    for output in network.outputs:
        data["outputs"][output.name] = _present(
            input=output.input,
            write=None if output.write is None else dict(output.write),
            qos=_qos(output.qos) or None,
            weight=None if output.weight == 1 else output.weight,
            minimum_sic=output.minimum_sic or None,
            sic=output.sic,
        )
    if network.capacity is not None:
        data["capacity"] = network.capacity
    data["headroom"] = network.headroom
    text: str = yaml.safe_dump(data, sort_keys=False, default_flow_style=None, width=110, allow_unicode=True)
    return text


def _present(**keys: Any) -> dict[str, Any]:
    return {key: value for key, value in keys.items() if value is not None}


def _spread(histogram: Histogram) -> Any:
    if len(histogram.shares) == 1:
        return list(histogram.edges)
    return {"edges": list(histogram.edges), "shares": list(histogram.shares)}


def _box(box: Box) -> dict[str, Any]:
    made: dict[str, Any] = {"op": box.op}
    if isinstance(box, Union | Join):
        made["inputs"] = list(box.inputs)
    else:
        made["input"] = box.inputs[0]
    if isinstance(box, Filter):
        made["where"] = box.where.sql()
    elif isinstance(box, Map):
        made["select"] = {column: expression.sql() for column, expression in box.select.items()}
        if box.inverse:
            made["inverse"] = {
                column: f"{inverse.field} = {inverse.expression}" + ("" if inverse.increasing else ", falling")
                for column, inverse in box.inverse.items()
            }
    elif isinstance(box, Join):
        made |= {"on": list(box.on), "within": box.within}
    elif isinstance(box, Aggregate):
        made |= _present(window=box.window, slide=box.slide, by=list(box.by) or None)
        made["compute"] = {column: expression.sql() for column, expression in box.compute.items()}
    elif isinstance(box, CountWindow):
        made |= _present(rows=box.rows, by=list(box.by) or None)
        made["compute"] = {column: expression.sql() for column, expression in box.compute.items()}
    elif isinstance(box, TopK):
        made |= _present(k=box.k, field=box.field, window=box.window, by=list(box.by) or None)
    elif isinstance(box, Udf):
        made |= {"function": box.function, "reads": list(box.reads), "adds": ddl((box.adds,))}
        if box.load_aware is not None:
            made["load_aware"] = asdict(box.load_aware) | {"key": list(box.load_aware.key)}
    return {**made, "cost": box.cost, "selectivity": box.selectivity}


def _qos(qos: QoS) -> dict[str, Any]:
    return _present(
        loss=None if qos.loss is None else [list(point) for point in qos.loss.points],
        latency=None if qos.latency is None else [list(point) for point in qos.latency.points],
        value=None
        if qos.value is None
        else {
            "field": qos.value.field,
            "intervals": [
                [i.low, i.high, i.utility] if i.utility == i.end else [i.low, i.high, i.utility, i.end]
                for i in qos.value.intervals
            ],
        },
        histogram=None if qos.histogram is None else _spread(qos.histogram),
    )
