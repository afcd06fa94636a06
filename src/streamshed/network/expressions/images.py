"""Maps without an inverse: which values they take into a range, found by trying ranges forward.

Aurora's forward interval propagation (Carney et al., Monitoring Streams, VLDB 2002): propose a range upstream,
see what becomes of it downstream, and correct the proposal. Here a proposal is pushed through the expression as
a whole, by interval arithmetic, so its image holds every result. A range whose image lies inside is taken, one
whose image lies outside is not, and any other is halved. What is taken is surely right; what remains unclear is
left out.

    abs(x) in [0, 60)  ─►  x in (−60, 60)

Ranges are halved by counting floating-point numbers, so that 64 halvings lead from all numbers to a single one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from streamshed.network.expressions.analysis import constant_of
from streamshed.network.expressions.expression import Binary, Call, Expression, Field, Literal, Unary
from streamshed.network.expressions.ranges import INF, Ranges, above

Vector = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Keys = npt.NDArray[np.int64]

_MOST = float(np.finfo(np.float64).max)
_TINY = 1e-300
_UNCLEAR = 1024
"""Ranges that are looked at together; of more, those nearest to 0 go on, and the rest is left out."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A map of one field that has no inverse; its preimages are found by trial."""

    field: str
    expression: Expression

    @staticmethod
    def of(expression: Expression) -> Trial | None:
        """For an expression of one field that ranges can be pushed through; else None."""
        fields = expression.fields()
        return Trial(next(iter(fields)), expression) if len(fields) == 1 and _known(expression) else None

    def forward(self, value: float) -> float:
        with np.errstate(all="ignore"):
            return float(self.expression.evaluate({self.field: np.asarray(value)}))

    def preimages(self, sets: Sequence[Ranges]) -> list[Ranges]:
        """For each set of results, the values that surely lead into it."""
        return list(preimages(self.expression, tuple(sets)))

    def possible(self, ranges: Ranges) -> Ranges:
        """Values that may go into `ranges`: all but those that surely do not."""
        return ~self.preimages([~ranges])[0]


@lru_cache(maxsize=1024)
def preimages(expression: Expression, sets: tuple[Ranges, ...]) -> tuple[Ranges, ...]:
    """For each set, the values of an expression's one field that it takes into that set; all sets at once.

    >>> from streamshed.network.expressions.expression import parse
    >>> for text in ("abs(x)", "floor(x / 10)", "sqrt(x)", "greatest(x, 3)"):
    ...     (found,) = preimages(parse(text), (Ranges.between(3, 4),))
    ...     print(f"{text:16}", found.render("x"))
    abs(x)           (x > -4 AND x <= -3) OR (x >= 3 AND x < 4)
    floor(x / 10)    x >= 30 AND x < 40
    sqrt(x)          x >= 9 AND x < 16
    greatest(x, 3)   x < 4
    """
    ends = sorted({end for ranges in sets for span in ranges for end in span})
    gaps = _between(expression, ends)
    found = []
    for ranges in sets:
        inside = (spans for low, spans in zip(ends, gaps[1:], strict=True) if low in ranges)
        found.append(
            ranges if ranges == Ranges.everything() else Ranges.of(span for spans in inside for span in spans)
        )
    return tuple(found)


def _between(expression: Expression, ends: Sequence[float]) -> list[list[tuple[float, float]]]:
    """The values whose result lies below the first end, between the first and the second, …, from the last on."""
    most = int(np.array(_MOST).view(np.int64))
    first, last = np.array([-most, 0]), np.array([-1, most])
    parts: list[tuple[Keys, Keys, Keys]] = []
    with np.errstate(all="ignore"):
        while len(first):
            image = _image(expression, _Image.between(_floats(first), _floats(last)))
            gap, behind = (np.searchsorted(ends, end, side="right") for end in (image.low, image.high))
            clear = image.defined & (gap == behind)
            parts.append((gap[clear], first[clear], last[clear]))
            unclear = ~clear & ~image.nowhere & (first < last)
            first, last = first[unclear], last[unclear]
            middle = first + (last - first) // 2
            first, last = np.concatenate((first, middle + 1)), np.concatenate((middle, last))
            if len(first) > _UNCLEAR:
                nearest = np.argsort(np.minimum(np.abs(first), np.abs(last)), kind="stable")[:_UNCLEAR]
                first, last = first[nearest], last[nearest]
    gap, first, last = (np.concatenate(column) for column in zip(*parts, strict=True))
    low, high = _floats(first), _floats(np.minimum(last + 1, most))
    low[first == -most], high[last == most] = -INF, INF
    for edge in (low, high):
        # Nearer to 0 than any value comes, rounding decides; such ends would only be hard to read.
        edge[(edge > 0) & (edge < _TINY)] = above(0.0)
        edge[(edge < 0) & (edge > -_TINY)] = 0.0
    found: list[list[tuple[float, float]]] = [[] for _ in range(len(ends) + 1)]
    for number, *span in zip(gap.tolist(), low.tolist(), high.tolist(), strict=True):
        found[number].append((span[0], span[1]))
    return found


def _floats(keys: Keys) -> Vector:
    """Numbers by their place among all floating-point numbers, 0 at 0."""
    numbers: Vector = np.where(keys < 0, -np.abs(keys).view(np.float64), np.abs(keys).view(np.float64))
    return numbers


# ── interval arithmetic ──────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _Image:
    """For each of many ranges, bounds of the results. Rounding is monotone: they hold for floating point too."""

    low: Vector
    high: Vector
    defined: Mask
    """Every value of the range has a result."""
    nowhere: Mask
    """None has."""

    @staticmethod
    def between(low: Vector, high: Vector) -> _Image:
        """Ranges as they are; a result that is too large for a number is none."""
        defined = np.isfinite(low) & np.isfinite(high)
        low, high = np.nan_to_num(low, nan=-_MOST), np.nan_to_num(high, nan=_MOST)
        return _Image(low, high, defined, (low == high) & ~defined)

    def becomes(self, low: Vector, high: Vector, where: Mask | bool = True, never: Mask | bool = False) -> _Image:
        made = _Image.between(low, high)
        return _Image(
            made.low, made.high, self.defined & made.defined & where, self.nowhere | made.nowhere | never
        )

    def spanned(self, *corners: Vector, where: Mask | bool = True, never: Mask | bool = False) -> _Image:
        """From the least to the most of some values; all numbers where a range may have no result."""
        low = np.where(where, np.minimum.reduce(corners), -_MOST)
        return self.becomes(low, np.where(where, np.maximum.reduce(corners), _MOST), where, never)

    @property
    def around_zero(self) -> Mask:
        inside: Mask = (self.low <= 0) & (self.high >= 0)
        return inside


def _known(expression: Expression) -> bool:
    """Whether ranges can be pushed through an expression."""
    if isinstance(expression, Field):
        return True
    if isinstance(expression, Literal):
        return not isinstance(expression.value, bool | str)
    if isinstance(expression, Unary | Binary) and expression.op not in ("NEG", *"+-*/%"):
        return False
    if isinstance(expression, Call) and expression.name not in (*_CALLS, "power", "least", "greatest"):
        return False
    return all(_known(child) for child in expression.children())


def _image(expression: Expression, of: _Image) -> _Image:
    if isinstance(expression, Field):
        return of
    constant = constant_of(expression)
    if constant is not None:
        same = np.full(len(of.low), constant)
        return _Image.between(same, same)
    parts = [_image(child, of) for child in expression.children()]
    if isinstance(expression, Unary):
        return parts[0].becomes(-parts[0].high, -parts[0].low)
    if isinstance(expression, Call) and expression.name in _CALLS:
        return _CALLS[expression.name](parts[0])
    left, right = parts
    both = _Image(left.low, left.high, left.defined & right.defined, left.nowhere | right.nowhere)
    name = expression.op if isinstance(expression, Binary) else expression.name  # type: ignore[attr-defined]
    return _PAIRS[name](both, right)


def _absolute(x: _Image) -> _Image:
    low = np.where(x.around_zero, 0.0, np.minimum(np.abs(x.low), np.abs(x.high)))
    return x.becomes(low, np.maximum(np.abs(x.low), np.abs(x.high)))


def _square_root(x: _Image) -> _Image:
    return x.becomes(np.sqrt(np.maximum(x.low, 0)), np.sqrt(np.maximum(x.high, 0)), x.low >= 0, x.high < 0)


def _logarithm(x: _Image) -> _Image:
    high = np.log(np.maximum(x.high, np.finfo(np.float64).tiny))
    return x.becomes(np.log(np.maximum(x.low, 0)), high, x.low > 0, x.high <= 0)


def _corners(x: _Image, y: _Image, function: np.ufunc) -> tuple[Vector, Vector, Vector, Vector]:
    return (
        function(x.low, y.low), function(x.low, y.high), function(x.high, y.low), function(x.high, y.high),
    )  # fmt: skip


def _modulo(x: _Image, y: _Image) -> _Image:
    size = np.maximum(np.abs(y.low), np.abs(y.high))
    low, high = np.fmod(x.low, size), np.fmod(x.high, size)
    one_sign = (x.low >= 0) | (x.high <= 0)
    # Within one period the result rises with x; where a new one begins it falls back.
    rises = (y.low == y.high) & one_sign & (x.high - x.low < size) & (low <= high)
    return x.becomes(
        np.where(rises, low, np.where(x.low >= 0, 0.0, -size)),
        np.where(rises, high, np.where(x.high <= 0, 0.0, size)),
        ~y.around_zero,
        (y.low == 0) & (y.high == 0),
    )


def _power(x: _Image, y: _Image) -> _Image:
    exponent = float(y.low[0]) if len(y.low) and np.all(y.low == y.high) and np.all(y.low == y.low[0]) else None
    if exponent is not None and exponent.is_integer():
        if exponent % 2 == 0:
            x = _absolute(x)
        return x.spanned(*_corners(x, y, np.power), where=(exponent >= 0) | ~x.around_zero)
    where = x.low >= 0 if exponent is not None and exponent > 0 else x.low > 0
    return x.spanned(*_corners(x, y, np.power), where=where, never=(exponent is not None) & (x.high < 0))


_CALLS: dict[str, Callable[[_Image], _Image]] = {
    "abs": _absolute,
    "sqrt": _square_root,
    "ln": _logarithm,
    "exp": lambda x: x.becomes(np.exp(x.low), np.exp(x.high)),
    "floor": lambda x: x.becomes(np.floor(x.low), np.floor(x.high)),
    "ceil": lambda x: x.becomes(np.ceil(x.low), np.ceil(x.high)),
}
_PAIRS: dict[str, Callable[[_Image, _Image], _Image]] = {
    "+": lambda x, y: x.becomes(x.low + y.low, x.high + y.high),
    "-": lambda x, y: x.becomes(x.low - y.high, x.high - y.low),
    "*": lambda x, y: x.spanned(*_corners(x, y, np.multiply)),
    "/": lambda x, y: x.spanned(*_corners(x, y, np.true_divide), where=~y.around_zero),
    "%": _modulo,
    "power": _power,
    "least": lambda x, y: x.becomes(np.minimum(x.low, y.low), np.minimum(x.high, y.high)),
    "greatest": lambda x, y: x.becomes(np.maximum(x.low, y.low), np.maximum(x.high, y.high)),
}
