"""What an expression says about values: which can pass a predicate, and how a monotone map is undone.

passing(predicate)      for each field, the values it can have where the predicate is true
invert(expression)      the inverse of a monotone expression of one field
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

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
from streamshed.network.expressions.ranges import INF, Ranges, above, number


@dataclass(frozen=True, slots=True)
class Passing:
    """For each field named, the values it has where a predicate is true; other fields are free.

    `exact` says that the predicate is nothing more than the conjunction of these ranges.
    """

    ranges: Mapping[str, Ranges]
    exact: bool

    def of(self, field: str) -> Ranges:
        return self.ranges.get(field, Ranges.everything())


def passing(predicate: Expression) -> Passing:
    """What a predicate lets pass, field by field.

    >>> from streamshed.network.expressions.expression import parse
    >>> found = passing(parse("bpm * 2 > 280 AND bpm < 200 AND ok"))
    >>> found.of("bpm").render("bpm"), found.exact
    ('bpm > 140 AND bpm < 200', False)
    """
    ranges, exact = _passing(predicate, False)
    return Passing(ranges, exact)


def _passing(node: Expression, negated: bool) -> tuple[dict[str, Ranges], bool]:
    if isinstance(node, Unary) and node.op == "NOT":
        return _passing(node.operand, not negated)
    if isinstance(node, Literal) and isinstance(node.value, bool):
        if node.value != negated:
            return {}, True
        return {}, False
    if isinstance(node, Binary) and node.op in ("AND", "OR"):
        left, left_exact = _passing(node.left, negated)
        right, right_exact = _passing(node.right, negated)
        if (node.op == "AND") != negated:
            everything = Ranges.everything()
            both = {f: left.get(f, everything) & right.get(f, everything) for f in {**left, **right}}
            return both, left_exact and right_exact
        either = {f: left[f] | right[f] for f in left if f in right}
        return either, left_exact and right_exact and left.keys() == right.keys() and len(left) == 1
    if isinstance(node, Binary) and node.op in COMPARISONS:
        found = _comparison(node)
        if found is not None:
            field, ranges = found
            return {field: ~ranges if negated else ranges}, True
    return {}, False


def comparisons(node: Expression) -> Iterator[tuple[str, Ranges]]:
    """Every comparison of one field with a number anywhere in an expression: the field, and where it holds.

    >>> from streamshed.network.expressions.expression import parse
    >>> [(field, ranges.render(field)) for field, ranges in comparisons(parse("x > 5 OR (y < 3 AND NOT x = 1)"))]
    [('x', 'x > 5'), ('y', 'y < 3'), ('x', 'x >= 1 AND x <= 1')]
    """
    if isinstance(node, Binary) and node.op in COMPARISONS:
        found = _comparison(node)
        if found is not None:
            yield found
            return
    for child in node.children():
        yield from comparisons(child)


def _comparison(node: Binary) -> tuple[str, Ranges] | None:
    """The values of the one field for which `monotone(field) op constant` holds."""
    left, right, op = node.left, node.right, node.op
    if not right.fields() and left.fields():
        pass
    elif not left.fields() and right.fields():
        left, right, op = right, left, {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(op, op)
    else:
        return None
    inverse = invert(left)
    constant = constant_of(right)
    if inverse is None or constant is None or math.isnan(constant):
        return None
    image = {
        "=": Ranges.between(constant, above(constant)),
        "!=": ~Ranges.between(constant, above(constant)),
        "<": Ranges.between(-INF, constant),
        "<=": Ranges.between(-INF, above(constant)),
        ">": Ranges.between(above(constant), INF),
        ">=": Ranges.between(constant, INF),
    }[op]
    return inverse.field, inverse.preimage(image)


def constant_of(expression: Expression) -> float | None:
    """The number that an expression without fields is, or None."""
    if expression.fields() or any(c for c in expression.children() if constant_of(c) is None):
        return None
    if isinstance(expression, Literal):
        value = expression.value
        return None if isinstance(value, bool | str) else value
    if isinstance(expression, Call) and expression.name in AGGREGATES:
        return None
    with np.errstate(all="ignore"):
        return float(expression.evaluate({}))


@dataclass(frozen=True, slots=True)
class Inverse:
    """`field` as a monotone function `expression` of `of`.

    The forward direction, where it is known, settles on which side of a cut the cut itself falls.
    """

    field: str
    of: str
    expression: Expression
    increasing: bool

    def __call__(self, value: float) -> float:
        if math.isinf(value):
            return value if self.increasing else -value
        with np.errstate(all="ignore"):
            return float(self.expression.evaluate({self.of: np.asarray(value)}))

    def preimage(self, ranges: Ranges) -> Ranges:
        """The values of `field` that the inverted function takes into `ranges`."""
        found = []
        for low, high in ranges:
            if self.increasing:
                found.append((self._edge(low), self._edge(high)))
            else:
                found.append((self._flipped(high), self._flipped(low)))
        return Ranges.of(found)

    def _edge(self, value: float) -> float:
        # An end one step above a round number means "beyond it"; keep that meaning across the inverse,
        # where rounding would otherwise swallow the step.
        if math.isinf(value):
            return self(value)
        before = math.nextafter(value, -INF)
        return above(self(before)) if len(number(before)) < len(number(value)) else self(value)

    def _flipped(self, value: float) -> float:
        if math.isinf(value):
            return self(value)
        before = math.nextafter(value, -INF)
        return self(before) if len(number(before)) < len(number(value)) else above(self(value))


def invert(expression: Expression, of: str = "value") -> Inverse | None:
    """The inverse of a strictly monotone expression of one field, or None if this cannot tell one.

    >>> from streamshed.network.expressions.expression import parse
    >>> inverse = invert(parse("bpm * 2 + 1"), "f")
    >>> print(inverse.field, "=", inverse.expression, inverse.increasing)
    bpm = (f - 1) / 2 True
    >>> print(invert(parse("100 - bpm / 4")).expression)
    (100 - value) * 4
    >>> invert(parse("bpm * bpm")) is None
    True
    """
    steps: Expression = Field(of)
    increasing = True
    node = expression
    while not isinstance(node, Field):
        if isinstance(node, Unary) and node.op == "NEG":
            steps, node, increasing = Unary("NEG", steps), node.operand, not increasing
            continue
        if isinstance(node, Call) and node.name in ("exp", "ln"):
            steps = Call("ln" if node.name == "exp" else "exp", (steps,))
            node = node.args[0]
            continue
        if not isinstance(node, Binary):
            return None
        left, right = constant_of(node.left), constant_of(node.right)
        if right is not None and math.isfinite(right):
            undo = {"+": "-", "-": "+", "*": "/", "/": "*"}.get(node.op)
            if undo is None or (node.op in "*/" and right == 0):
                return None
            steps = Binary(undo, steps, node.right)
            increasing ^= node.op in "*/" and right < 0
            node = node.left
        elif left is not None and math.isfinite(left):
            if node.op == "+":
                steps = Binary("-", steps, node.left)
            elif node.op == "-":
                steps, increasing = Binary("-", node.left, steps), not increasing
            elif node.op == "*" and left != 0:
                steps = Binary("/", steps, node.left)
                increasing ^= left < 0
            else:
                return None
            node = node.right
        else:
            return None
    return Inverse(node.name, of, steps, increasing)
