"""The small expression language of filters and maps: parsed once, then evaluated, rendered, or analysed
(`network.analysis`).

    parse("bpm * 2 + 1 > 280 AND NOT resting")      text ─► tree
    expression.evaluate({"bpm": array, …})          on whole columns of numpy, for the simulator
    expression.sql()                                back to SQL, for Spark
    expression.fields()                             the columns it reads

Grammar, loosest first: OR; AND; NOT; comparison (`= == != <> < <= > >=`, BETWEEN, IN); `+ -`; `* / %`;
unary minus; a literal, a field, a function call or parentheses.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from streamshed.errors import InvalidArgument
from streamshed.network.expressions.ranges import number

Array = npt.NDArray[Any]
Columns = Mapping[str, Array]

AGGREGATES = ("avg", "sum", "min", "max", "count", "count_distinct")


class ExpressionError(InvalidArgument):
    """Text that is no expression of the language."""


@dataclass(frozen=True, slots=True)
class Expression:
    """A node of the tree; the subclasses below are all there are."""

    def evaluate(self, columns: Columns) -> Array:
        """The value for every row, as an array (or a numpy scalar when no field is read)."""
        raise NotImplementedError

    def sql(self) -> str:
        """The expression as SQL; `parse` of it gives an equal tree."""
        raise NotImplementedError

    def fields(self) -> frozenset[str]:
        return frozenset().union(*(child.fields() for child in self.children()))

    def children(self) -> tuple[Expression, ...]:
        return ()

    def __str__(self) -> str:
        return self.sql()


@dataclass(frozen=True, slots=True)
class Literal(Expression):
    value: float | str | bool

    def evaluate(self, columns: Columns) -> Array:
        return np.asarray(self.value)

    def sql(self) -> str:
        if isinstance(self.value, bool):
            return "TRUE" if self.value else "FALSE"
        if isinstance(self.value, str):
            return "'" + self.value.replace("'", "''") + "'"
        return number(self.value)


@dataclass(frozen=True, slots=True)
class Field(Expression):
    name: str

    def evaluate(self, columns: Columns) -> Array:
        return columns[self.name]

    def sql(self) -> str:
        return self.name

    def fields(self) -> frozenset[str]:
        return frozenset((self.name,))


@dataclass(frozen=True, slots=True)
class Unary(Expression):
    """`-x` or `NOT x`."""

    op: str
    operand: Expression

    def evaluate(self, columns: Columns) -> Array:
        value = self.operand.evaluate(columns)
        result: Array = np.logical_not(value) if self.op == "NOT" else np.negative(value)
        return result

    def sql(self) -> str:
        if self.op == "NOT":
            return f"NOT {_within(self.operand, _LEVEL[self.op])}"
        return f"-{_within(self.operand, _ATOM)}"  # never "--", which begins a comment

    def children(self) -> tuple[Expression, ...]:
        return (self.operand,)


@dataclass(frozen=True, slots=True)
class Binary(Expression):
    op: str
    left: Expression
    right: Expression

    def evaluate(self, columns: Columns) -> Array:
        result: Array = _BINARY[self.op](self.left.evaluate(columns), self.right.evaluate(columns))
        return result

    def sql(self) -> str:
        level = _LEVEL[self.op]
        # Left-associative: the right side needs brackets at the same level; comparisons do not chain.
        left = _within(self.left, level + (self.op in COMPARISONS))
        return f"{left} {self.op} {_within(self.right, level + 1)}"

    def children(self) -> tuple[Expression, ...]:
        return (self.left, self.right)


@dataclass(frozen=True, slots=True)
class Call(Expression):
    """A function: one of `FUNCTIONS`, or in an aggregate's `compute` one of `AGGREGATES`."""

    name: str
    args: tuple[Expression, ...]

    def evaluate(self, columns: Columns) -> Array:
        if self.name in AGGREGATES:
            raise InvalidArgument(f"{self.name}() needs a window", hint="use it in an aggregate box")
        result: Array = FUNCTIONS[self.name][1](*(arg.evaluate(columns) for arg in self.args))
        return result

    def sql(self) -> str:
        return f"{self.name}({', '.join(arg.sql() for arg in self.args)})"

    def children(self) -> tuple[Expression, ...]:
        return self.args


def _modulo(left: Array, right: Array) -> Array:
    result: Array = np.fmod(left, right)  # SQL's %: the sign of the dividend
    return result


COMPARISONS = ("=", "!=", "<", "<=", ">", ">=")
_BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "OR": np.logical_or, "AND": np.logical_and,
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt,
    ">=": operator.ge,
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.true_divide, "%": _modulo,
}  # fmt: skip
_LEVEL = {
    "OR": 1, "AND": 2, "NOT": 3, **dict.fromkeys(COMPARISONS, 4),
    "+": 5, "-": 5, "*": 6, "/": 6, "%": 6, "NEG": 7,
}  # fmt: skip
_ATOM = 8

FUNCTIONS: dict[str, tuple[int, Callable[..., Array]]] = {
    "abs": (1, np.abs), "sqrt": (1, np.sqrt), "exp": (1, np.exp), "ln": (1, np.log), "floor": (1, np.floor),
    "ceil": (1, np.ceil), "power": (2, np.power), "least": (2, np.minimum), "greatest": (2, np.maximum),
}  # fmt: skip


def _within(expression: Expression, level: int) -> str:
    own = _ATOM
    if isinstance(expression, Binary | Unary):
        own = _LEVEL[expression.op]
    elif isinstance(expression, Literal) and not isinstance(expression.value, bool | str):
        own = _ATOM if expression.value >= 0 else _LEVEL["NEG"]
    return expression.sql() if own >= level else f"({expression.sql()})"


# ── parsing ──────────────────────────────────────────────────────────────────────────────────────

_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)|(?P<string>'(?:[^']|'')*')"
    r"|(?P<name>[A-Za-z_]\w*)|(?P<op><=|>=|<>|!=|==|[-+*/%<>=(),]))"
)
_KEYWORDS = {"AND", "OR", "NOT", "BETWEEN", "IN", "TRUE", "FALSE"}
_MAX_LENGTH = 10_000
_MAX_DEPTH = 50
_MAX_TREE = 200


def parse(text: str) -> Expression:
    """Parse an expression.

    >>> print(parse("bpm>140 and (a or not b)"))
    bpm > 140 AND (a OR NOT b)
    >>> parse("bpm >")
    Traceback (most recent call last):
    ...
    streamshed.network.expressions.expression.ExpressionError: expected a value, found the end
      got:  'bpm >' at column 6
      hint: fields, numbers, 'text', TRUE, FALSE, + - * / %, = != < <= > >=, BETWEEN, IN, AND, OR, NOT, ...
    """
    return _Parser(text).whole()


class _Parser:
    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise ExpressionError("an expression must be text", got=repr(text))
        if len(text) > _MAX_LENGTH:
            raise ExpressionError(f"an expression has at most {_MAX_LENGTH} characters", got=len(text))
        self.text = text
        self.depth = 0
        self.tokens: list[tuple[str, str, int]] = []
        position, end = 0, len(text.rstrip())
        while position < end:
            match = _TOKEN.match(text, position)
            if not match:
                at = position + len(text[position:]) - len(text[position:].lstrip())
                raise self.error(f"unexpected {text[at]!r}", at)
            kind = str(match.lastgroup)
            token = match[kind]
            if kind == "name" and token.upper() in _KEYWORDS:
                kind, token = "op", token.upper()
            self.tokens.append((kind, token, match.start(kind)))
            position = match.end()
        self.tokens.append(("end", "", len(text)))
        self.at = 0

    def error(self, problem: str, column: int) -> ExpressionError:
        functions = ", ".join(f"{name}()" for name in FUNCTIONS)
        return ExpressionError(
            problem,
            got=f"{self.text!r} at column {column + 1}",
            hint="fields, numbers, 'text', TRUE, FALSE, + - * / %, = != < <= > >=, "
            f"BETWEEN, IN, AND, OR, NOT, {functions}",
        )

    def expected(self, what: str) -> ExpressionError:
        kind, token, column = self.tokens[self.at]
        return self.error(f"expected {what}, found {'the end' if kind == 'end' else repr(token)}", column)

    def accept(self, *ops: str) -> str | None:
        kind, token, _ = self.tokens[self.at]
        if kind == "op" and token in ops:
            self.at += 1
            return token
        return None

    def require(self, op: str) -> None:
        if not self.accept(op):
            raise self.expected(repr(op))

    def whole(self) -> Expression:
        result = self.disjunction()
        if self.tokens[self.at][0] != "end":
            raise self.expected("the end or an operator")
        level, depth = [result], 0
        while level:  # long chains of operators are deep trees, which recursion could not walk
            level, depth = [child for node in level for child in node.children()], depth + 1
        if depth > _MAX_TREE:
            raise self.error(f"more than {_MAX_TREE} operators in a row", len(self.text))
        return result

    def disjunction(self) -> Expression:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise self.error(f"nested deeper than {_MAX_DEPTH}", self.tokens[self.at][2])
        left = self.conjunction()
        while self.accept("OR"):
            left = Binary("OR", left, self.conjunction())
        self.depth -= 1
        return left

    def conjunction(self) -> Expression:
        left = self.negation()
        while self.accept("AND"):
            left = Binary("AND", left, self.negation())
        return left

    def negation(self) -> Expression:
        negations = 0
        while self.accept("NOT"):
            negations += 1
        result = self.comparison()
        for _ in range(negations):
            result = Unary("NOT", result)
        return result

    def comparison(self) -> Expression:
        left = self.sum()
        if op := self.accept("=", "==", "!=", "<>", "<", "<=", ">", ">="):
            return Binary({"==": "=", "<>": "!="}.get(op, op), left, self.sum())
        negated = self.tokens[self.at][1] == "NOT" and self.tokens[self.at + 1][1] in ("BETWEEN", "IN")
        if negated:
            self.at += 1
        result: Expression | None = None
        if self.accept("BETWEEN"):
            low = self.sum()
            self.require("AND")
            result = Binary("AND", Binary(">=", left, low), Binary("<=", left, self.sum()))
        elif self.accept("IN"):
            self.require("(")
            result = Binary("=", left, self.sum())
            while self.accept(","):
                result = Binary("OR", result, Binary("=", left, self.sum()))
            self.require(")")
        if result is None:
            return left
        return Unary("NOT", result) if negated else result

    def sum(self) -> Expression:
        left = self.product()
        while op := self.accept("+", "-"):
            left = Binary(op, left, self.product())
        return left

    def product(self) -> Expression:
        left = self.signed()
        while op := self.accept("*", "/", "%"):
            left = Binary(op, left, self.signed())
        return left

    def signed(self) -> Expression:
        signs = 0
        while op := self.accept("-", "+"):
            signs += op == "-"
        operand = self.atom()
        if signs % 2 == 0:
            return operand
        if isinstance(operand, Literal) and not isinstance(operand.value, bool | str):
            return Literal(-operand.value)
        return Unary("NEG", operand)

    def atom(self) -> Expression:
        kind, token, column = self.tokens[self.at]
        if kind == "number":
            value = float(token)
            if math.isinf(value):
                raise self.error("too large a number", column)
            self.at += 1
            return Literal(value)
        if kind == "string":
            self.at += 1
            return Literal(token[1:-1].replace("''", "'"))
        if kind == "name":
            self.at += 1
            return self.call(token) if self.accept("(") else Field(token)
        if token in ("TRUE", "FALSE"):
            self.at += 1
            return Literal(token == "TRUE")
        if self.accept("("):
            inner = self.disjunction()
            self.require(")")
            return inner
        raise self.expected("a value")

    def distinct(self) -> bool:
        """Whether the word stands here, and is not a field of that name."""
        kind, token, _ = self.tokens[self.at]
        found = kind == "name" and token.upper() == "DISTINCT" and self.tokens[self.at + 1][0] == "name"
        self.at += found
        return found

    def call(self, token: str) -> Expression:
        name, column = token.lower(), self.tokens[self.at - 2][2]
        if name not in FUNCTIONS and name not in AGGREGATES:
            raise self.error(f"unknown function {token!r}", column)
        args: list[Expression] = []
        if name == "count" and self.accept("*"):
            self.require(")")
            return Call(name, (Literal(1.0),))
        if name == "count" and self.distinct():
            name = "count_distinct"
        if not self.accept(")"):
            args.append(self.disjunction())
            while self.accept(","):
                args.append(self.disjunction())
            self.require(")")
        arity = 1 if name in AGGREGATES else FUNCTIONS[name][0]
        if len(args) != arity:
            raise self.error(f"{name}() takes {arity} argument(s), not {len(args)}", column)
        return Call(name, tuple(args))
