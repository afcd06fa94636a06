"""What can be wrong with a network, and the columns that flow through it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from streamshed.network.expressions.expression import (
    AGGREGATES,
    COMPARISONS,
    Binary,
    Call,
    Expression,
    Field,
    Literal,
    Unary,
)
from streamshed.network.nodes import (
    Aggregate,
    Box,
    Column,
    CountWindow,
    Filter,
    Join,
    LoadAware,
    Map,
    Output,
    Problem,
    Schema,
    Source,
    TopK,
    Udf,
    Union,
    ddl,
    inputs,
)

_UNUSABLE, _PRINTABLE = "not a usable name", "nothing that cannot be printed"
LARGEST = 1e100
"""No figure may be larger, so that what is computed from several of them is still a number."""


@dataclass(frozen=True)
class Draft:
    """A network that need not be right yet."""

    sources: tuple[Source, ...] = ()
    boxes: tuple[Box, ...] = ()
    outputs: tuple[Output, ...] = ()
    capacity: float | None = None
    headroom: float = 0.9
    broken: frozenset[str] = frozenset()
    """Nodes already known to be wrong: of what they would yield, nothing is said."""
    name: str = ""


def check(network: Draft) -> list[Problem]:
    """Everything that is wrong with a network, each problem with its path in a spec."""
    problems: list[Problem] = []
    groups = (("sources", network.sources), ("boxes", network.boxes), ("outputs", network.outputs))
    seen: dict[str, str] = {}
    if not network.name.isprintable():
        problems.append(Problem("network", _UNUSABLE, repr(network.name), _PRINTABLE))
    for group, nodes in groups:
        if not nodes and group != "boxes":
            problems.append(Problem(group, f"a network needs at least one of its {group}"))
        for node in nodes:
            path = f"{group}.{node.name}"
            if node.name in seen:
                problems.append(Problem(path, "the name is taken", f"also {seen[node.name]}", "one node a name"))
            seen.setdefault(node.name, path)
            if not node.name or "->" in node.name or node.name != node.name.strip() or not node.name.isprintable():
                allowed = f'no "->", no outer spaces, {_PRINTABLE}'
                problems.append(Problem(path, _UNUSABLE, repr(node.name), allowed))
    _check_numbers(network, problems)
    # A box that has an output's name is still a box.
    others = {source.name for source in network.sources} | {box.name for box in network.boxes}
    outputs = {output.name for output in network.outputs} - others
    usable = sorted(set(seen) - outputs)
    for group, consumers in (("boxes", network.boxes), ("outputs", network.outputs)):
        for node in consumers:
            names = inputs(node)
            for name in names:
                if name not in seen or name in outputs:
                    key = "input" if len(names) == 1 else "inputs"
                    problems.append(
                        Problem(
                            f"{group}.{node.name}.{key}",
                            "no such source or box",
                            repr(name),
                            ", ".join(usable),
                        )
                    )
            # What is broken may be of no known op; what was read as a union or a join is one.
            if isinstance(node, Union | Join) or (isinstance(node, Box) and node.name not in network.broken):
                _check_arity(node, problems)
    if any("the name is taken" in problem.problem for problem in problems):
        return problems
    order, stuck = topological(network.boxes)
    if stuck:
        cycle = _cycle({box.name: box for box in stuck})
        problems.append(Problem(f"boxes.{cycle[0]}", "the boxes form a cycle", " -> ".join(cycle), "no cycles"))
    known = schemas(network.sources, order, network.outputs, problems, network.broken)
    for output in network.outputs:
        value = output.qos.value
        if value is not None and output.name in known:
            _check_numeric(f"outputs.{output.name}.qos.value.field", value.field, known[output.name], problems)
    return problems


def _check_numbers(network: Draft, problems: list[Problem]) -> None:
    def need(path: str, value: float, low: float, high: float, allowed: str) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            problems.append(Problem(path, "out of bounds", repr(value), allowed))

    most = f"0 or more, at most {LARGEST:g}"
    whole = f"a whole number of rows, 1 or more, at most {LARGEST:g}"
    for source in network.sources:
        need(f"sources.{source.name}.rate", source.rate, 0, LARGEST, f"rows per second, {most}")
        need(f"sources.{source.name}.protected", source.protected, 0, 1, "a share between 0 and 1")
        for field, spread in source.values.items():
            for edge in (spread.edges[0], spread.edges[-1]):
                allowed = f"from {-LARGEST:g} to {LARGEST:g}"
                need(f"sources.{source.name}.values.{field}", edge, -LARGEST, LARGEST, allowed)
    for box in network.boxes:
        need(f"boxes.{box.name}.cost", box.cost, 0, LARGEST, f"seconds per row, {most}")
        if isinstance(box, Filter | Map | Union | Udf):
            allowed = "rows out per row in, from 0 to 1: only joins and windows can give more than they get"
            need(f"boxes.{box.name}.selectivity", box.selectivity, 0, 1, allowed)
        else:
            need(f"boxes.{box.name}.selectivity", box.selectivity, 0, LARGEST, f"rows out per row in, {most}")
        if isinstance(box, CountWindow):
            need(f"boxes.{box.name}.rows", box.rows, 1, LARGEST, whole)
        if isinstance(box, TopK):
            need(f"boxes.{box.name}.k", box.k, 1, LARGEST, whole)
    for output in network.outputs:
        need(f"outputs.{output.name}.weight", output.weight, 1e-100, LARGEST, f"above 0, at most {LARGEST:g}")
        need(f"outputs.{output.name}.minimum_sic", output.minimum_sic, 0, 1, "a share between 0 and 1")
    if network.capacity is not None:
        least = 1e-100
        allowed = f"core-seconds per second, from {least:g} to {LARGEST:g}"
        need("capacity", network.capacity, least, LARGEST, allowed)
    need("headroom", network.headroom, 1e-100, 1, "above 0, at most 1")


def _check_arity(box: Box, problems: list[Problem]) -> None:
    path = f"boxes.{box.name}"
    count = len(box.inputs)
    if isinstance(box, Union):
        if count < 2:
            problems.append(Problem(f"{path}.inputs", "a union has two inputs or more", count))
    elif isinstance(box, Join):
        if count != 2:
            problems.append(Problem(f"{path}.inputs", "a join has two inputs", count))
    elif count != 1:
        problems.append(Problem(f"{path}.input", f"a {box.op} has one input", count))
    if len(set(box.inputs)) < count:
        problems.append(
            Problem(f"{path}.inputs", "the same input twice", ", ".join(box.inputs), "put a map in between")
        )


def topological(boxes: tuple[Box, ...]) -> tuple[tuple[Box, ...], tuple[Box, ...]]:
    """Boxes after their inputs, in the order given where there is a choice; and those in or below a cycle."""
    names = {box.name: box for box in boxes}
    waiting = {box.name: sum(name in names for name in set(box.inputs)) for box in boxes}
    below: dict[str, list[str]] = {name: [] for name in names}
    for box in boxes:
        for name in set(box.inputs):
            if name in names:
                below[name].append(box.name)
    ready = [box.name for box in boxes if waiting[box.name] == 0]
    done: list[Box] = []
    for name in ready:
        done.append(names[name])
        for after in below[name]:
            waiting[after] -= 1
            if waiting[after] == 0:
                ready.append(after)
    placed = set(ready)
    return tuple(done), tuple(box for box in boxes if box.name not in placed)


def _cycle(stuck: Mapping[str, Box]) -> list[str]:
    """A cycle among boxes each of which has an input among them."""
    name = next(iter(stuck))
    path: list[str] = []
    while name not in path:
        path.append(name)
        name = next(above for above in stuck[name].inputs if above in stuck)
    cycle = path[path.index(name) :]
    return [cycle[0], *reversed(cycle)]


def schemas(
    sources: tuple[Source, ...],
    order: tuple[Box, ...],
    outputs: tuple[Output, ...],
    problems: list[Problem],
    broken: frozenset[str] = frozenset(),
) -> dict[str, Schema]:
    """The columns that leave each node whose inputs are known; complaints go to `problems`."""
    known: dict[str, Schema] = {}
    for source in sources:
        if source.name in broken:
            continue
        known[source.name] = source.schema
        names = {column.name for column in source.schema}
        path = f"sources.{source.name}"
        if source.arrived is not None and source.arrived not in names:
            problems.append(
                Problem(f"{path}.arrived", "no such column", repr(source.arrived), ", ".join(sorted(names)))
            )
        if source.protect is not None:
            _check_fields(f"{path}.protect", source.protect, source.schema, problems)
        elif source.protected:
            problems.append(
                Problem(f"{path}.protected", "a share of what?", source.protected, "give `protect` too")
            )
        for name in source.key:
            if name not in names:
                problems.append(Problem(f"{path}.key", "no such column", repr(name), ", ".join(sorted(names))))
        if source.key and source.parse is not None:
            problems.append(
                Problem(f"{path}.key", "rows that are parsed late are dropped before their key is known",
                        ", ".join(source.key), "no `key`, or no `parse`")
            )  # fmt: skip
        if len(set(source.key)) < len(source.key):
            problems.append(Problem(f"{path}.key", "a column is named twice", ", ".join(source.key), "each once"))
        for name in source.values:
            _check_numeric(f"{path}.values.{name}", name, source.schema, problems)
    for box in order:
        if all(name in known for name in box.inputs) and box.inputs and box.name not in broken:
            made = _schema(box, [known[name] for name in box.inputs], problems)
            if made is not None:
                known[box.name] = made
    for output in outputs:
        if output.input in known:
            known[output.name] = known[output.input]
            _check_column(f"outputs.{output.name}.sic", output.sic or "", problems)
            if output.sic is not None and output.sic in {column.name for column in known[output.name]}:
                problems.append(Problem(f"outputs.{output.name}.sic", "the column is there already", output.sic))
    return known


def _schema(box: Box, above: list[Schema], problems: list[Problem]) -> Schema | None:
    path = f"boxes.{box.name}"
    first = above[0]
    names = {column.name: column for column in first}
    if isinstance(box, Filter):
        _check_fields(f"{path}.where", box.where, first, problems)
        return first
    if isinstance(box, Map):
        for name, expression in box.select.items():
            _check_column(f"{path}.select.{name}", name, problems)
            _check_fields(f"{path}.select.{name}", expression, first, problems)
        for name, inverse in box.inverse.items():
            if name not in box.select:
                problems.append(
                    Problem(f"{path}.inverse.{name}", "no such column", repr(name), ", ".join(box.select))
                )
            _check_numeric(f"{path}.inverse.{name}.field", inverse.field, first, problems)
        return tuple(Column(name, type_of(expression, names)) for name, expression in box.select.items())
    if isinstance(box, Union):
        for name, other in zip(box.inputs[1:], above[1:], strict=False):
            if other != first:
                problems.append(
                    Problem(f"{path}.inputs", f"{name!r} has other columns than {box.inputs[0]!r}",
                            f"{ddl(other)}; {ddl(first)}", "equal columns; a map can make them so")
                )  # fmt: skip
        return first
    if isinstance(box, Join):
        if len(above) != 2:
            return None
        for name in box.on:
            for side, schema in zip(box.inputs, above, strict=True):
                if name not in {column.name for column in schema}:
                    problems.append(
                        Problem(f"{path}.on", f"no column {name!r} in {side!r}", repr(name), ddl(schema))
                    )
        second = tuple(column for column in above[1] if column.name not in box.on)
        for column in second:
            if column.name in names:
                problems.append(
                    Problem(f"{path}.inputs", "both sides have this column", repr(column.name),
                            "equal names only in `on`; rename with a map")
                )  # fmt: skip
        return first + second
    if isinstance(box, Aggregate | CountWindow):
        return _aggregate_schema(box, first, problems)
    if isinstance(box, TopK):
        return _top_k_schema(box, first, problems)
    if isinstance(box, Udf):
        for name in box.reads:
            if name not in names:
                problems.append(Problem(f"{path}.reads", "no such column", repr(name), ", ".join(names)))
        for name in box.load_aware.key if box.load_aware is not None else ():
            if name not in names:
                problems.append(Problem(f"{path}.load_aware.key", "no such column", repr(name), ", ".join(names)))
        if box.load_aware is not None:
            if not box.load_aware.key:
                problems.append(Problem(f"{path}.load_aware.key", "no column", None, ", ".join(names)))
            problems += _load_aware_problems(f"{path}.load_aware", box.load_aware)
        if box.adds.name in names:
            problems.append(Problem(f"{path}.adds", "the column is there already", repr(box.adds.name)))
        return (*first, box.adds)
    return None


def _load_aware_problems(path: str, asked: LoadAware) -> Iterator[Problem]:
    """N, μ, ε, δ and the floor that no shedder can work with."""
    ranges: tuple[tuple[str, Callable[[float], bool], str], ...] = (
        ("window", lambda n: isinstance(n, int) and n >= 1, "a whole number of rows, at least 1"),
        ("tolerance", lambda share: 0 < share < 1, "above 0 and below 1"),
        ("epsilon", lambda share: 0 < share <= 1, "above 0 and at most 1"),
        ("delta", lambda share: 0 < share < 1, "above 0 and below 1"),
        ("floor", lambda share: 0 <= share <= 1, "a share between 0 and 1"),
    )
    for name, inside, allowed in ranges:
        value = getattr(asked, name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not inside(value):
            yield Problem(f"{path}.{name}", "out of bounds", repr(value), allowed)


_WINDOW = (Column("window_start", "TIMESTAMP"), Column("window_end", "TIMESTAMP"))


def _top_k_schema(box: TopK, above: Schema, problems: list[Problem]) -> Schema:
    path = f"boxes.{box.name}"
    _check_numeric(f"{path}.field", box.field, above, problems)
    names = [column.name for column in above]
    for name in box.by:
        if name not in names:
            problems.append(Problem(f"{path}.by", "no such column", repr(name), ", ".join(names)))
    return (*_WINDOW, *(column for column in above if column not in _WINDOW))


def _aggregate_schema(box: Aggregate | CountWindow, above: Schema, problems: list[Problem]) -> Schema:
    path = f"boxes.{box.name}"
    names = {column.name: column for column in above}
    columns = [*_WINDOW]
    for name in box.by:
        if name not in names:
            problems.append(Problem(f"{path}.by", "no such column", repr(name), ", ".join(names)))
        else:
            columns.append(names[name])
    for name, expression in box.compute.items():
        _check_column(f"{path}.compute.{name}", name, problems)
        if not isinstance(expression, Call) or expression.name not in AGGREGATES:
            problems.append(
                Problem(f"{path}.compute.{name}", "not an aggregate", repr(str(expression)),
                        ", ".join(f"{function}(…)" for function in AGGREGATES))
            )  # fmt: skip
            continue
        for inner in expression.args:
            _check_fields(f"{path}.compute.{name}", inner, above, problems)
        columns.append(Column(name, type_of(expression, names)))
    return tuple(columns)


def _check_column(path: str, name: str, problems: list[Problem]) -> None:
    if not name.isprintable():
        problems.append(Problem(path, _UNUSABLE, repr(name), _PRINTABLE))


def _check_fields(path: str, expression: Expression, schema: Schema, problems: list[Problem]) -> None:
    known = [column.name for column in schema]
    for name in sorted(expression.fields() - set(known)):
        problems.append(Problem(path, f"unknown field {name!r}", repr(str(expression)), ", ".join(known)))
    for comparison in _mixed(expression, {column.name: column for column in schema}):
        problems.append(
            Problem(path, "a number is compared with a text", repr(str(comparison)), "the same type on both sides")
        )
    if _aggregates(expression):
        problems.append(
            Problem(path, "an aggregate outside an aggregate box", repr(str(expression)), "plain expressions")
        )


def _mixed(expression: Expression, names: Mapping[str, Column]) -> Iterator[Expression]:
    """Comparisons of numbers with texts that are not numbers."""
    if isinstance(expression, Binary) and expression.op in COMPARISONS:
        types = [type_of(side, names) for side in (expression.left, expression.right)]
        texts = [
            side.value
            for side in (expression.left, expression.right)
            if isinstance(side, Literal) and isinstance(side.value, str)
        ]
        if (
            "STRING" in types
            and any(Column("", each).numeric for each in types)
            and not all(map(_is_number, texts))
        ):
            yield expression
    for child in expression.children():
        yield from _mixed(child, names)


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _aggregates(expression: Expression) -> bool:
    if isinstance(expression, Call) and expression.name in AGGREGATES:
        return True
    return any(_aggregates(child) for child in expression.children())


def _check_numeric(path: str, name: str, schema: Schema, problems: list[Problem]) -> None:
    numeric = [column.name for column in schema if column.numeric]
    if name not in numeric:
        problems.append(
            Problem(path, "not a numeric column", repr(name), ", ".join(numeric) or "none has numbers")
        )


def type_of(expression: Expression, names: Mapping[str, Column]) -> str:
    """The type of an expression's values."""
    if isinstance(expression, Field):
        return names[expression.name].type if expression.name in names else "DOUBLE"
    if isinstance(expression, Literal):
        return {bool: "BOOLEAN", str: "STRING"}.get(type(expression.value), "DOUBLE")
    if isinstance(expression, Binary) and expression.op not in ("+", "-", "*", "/", "%"):
        return "BOOLEAN"
    if isinstance(expression, Unary):
        return "BOOLEAN" if expression.op == "NOT" else type_of(expression.operand, names)
    if isinstance(expression, Call):
        if expression.name in ("count", "count_distinct"):
            return "LONG"
        if expression.name in ("min", "max", "abs"):
            return type_of(expression.args[0], names)
    return "DOUBLE"
