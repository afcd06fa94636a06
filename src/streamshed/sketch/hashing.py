"""Stable hashes: the same in every process, in Python and in Spark SQL.

Two steps. A key becomes a *digest*, a whole number below p = 2³¹ − 1; a digest becomes one cell for each row of
a sketch.

- Digest of any key: `xxhash64` as Spark computes it (seed 42, columns chained), modulo p. Streams whose keys are
  small whole numbers, as in the simulator, use them as they are.
- Cells: the family of Carter and Wegman, hᵢ(x) = ((aᵢ·x + bᵢ) mod p) mod c. It is 2-universal, and since
  x, aᵢ < 2³¹ nothing exceeds 63 bits: Spark SQL computes the same with plain BIGINT arithmetic, and ANSI mode has
  no overflow to raise.
"""

from __future__ import annotations

import datetime
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamshed.errors import InvalidArgument
from streamshed.jit import compiled, quick

PRIME = 2**31 - 1
"""p of the Carter-Wegman family, and the bound of digests."""
SEED = 42
"""Spark's own seed of `xxhash64`."""

Digests = NDArray[np.int64]

_MASK = 2**64 - 1
_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


def xxhash64(*values: object, seed: int = SEED) -> int:
    """Spark's `xxhash64` of one or several columns, as a signed 64-bit number.

    A Python `int` counts as BIGINT; for an INT, SMALLINT or TINYINT column give a numpy integer of that width.
    A null leaves the hash as it is.

    >>> xxhash64("Streamshed")
    -6531874120813891577
    >>> xxhash64(7), xxhash64(np.int32(7)), xxhash64(None)
    (-2864211556195259663, 2786828215451145335, 42)
    """
    state = seed & _MASK
    for value in values:
        data = _bytes_of(value)
        if data is not None:
            state = _xxh64(data, state)
    return state - 2**64 if state >= 2**63 else state


def digest(*key: object) -> int:
    """A key as a whole number below p; `pmod(xxhash64(key…), 2147483647)` in Spark.

    >>> digest("Streamshed") == xxhash64("Streamshed") % PRIME
    True
    >>> digest(None)
    Traceback (most recent call last):
    ...
    streamshed.errors.InvalidArgument: a null cannot be a key
      hint: filter such rows out, or give them a key of their own with coalesce(key, ...)
    """
    if all(part is None for part in key):
        raise InvalidArgument(
            "a null cannot be a key",
            hint="filter such rows out, or give them a key of their own with coalesce(key, ...)",
        )
    return xxhash64(*key) % PRIME


def digests(keys: NDArray[Any]) -> Digests:
    """The digests of an array of BIGINT or INT keys, or of one of strings or bytes.

    >>> digests(np.array([7, 8])).tolist() == [digest(7), digest(8)]
    True
    """
    if keys.dtype == np.int64:
        return _digest_longs(keys)
    if keys.dtype.kind == "i":
        return _digest_ints(keys.astype(np.int32))
    return np.fromiter((digest(key) for key in keys.tolist()), np.int64, len(keys))


@dataclass(frozen=True, slots=True, eq=False)
class CarterWegman:
    """r hash functions into c columns, drawn from the 2-universal family.

    >>> hashes = CarterWegman.draw(2, 5, seed=1)
    >>> hashes.cells_of(7) == tuple(hashes.cells(np.array([7]))[0].tolist())
    True
    """

    a: NDArray[np.int64]
    b: NDArray[np.int64]
    columns: int

    def __post_init__(self) -> None:
        if len(self.a) != len(self.b) or len(self.a) < 1 or self.columns < 1:
            raise InvalidArgument(
                "hashes need at least one row and one column, and an a and a b for each row",
                got=f"{len(self.a)} a, {len(self.b)} b, {self.columns} columns",
            )
        if not (np.all((self.a >= 1) & (self.a < PRIME)) and np.all((self.b >= 0) & (self.b < PRIME))):
            raise InvalidArgument(f"the factors of a hash must be in 1 ... {PRIME - 1}, its offsets in 0 ... same")

    @classmethod
    def draw(cls, rows: int, columns: int, seed: int | np.random.Generator) -> CarterWegman:
        """Random members of the family; the same seed draws the same ones."""
        rng = np.random.default_rng(seed)
        return cls(rng.integers(1, PRIME, max(rows, 0)), rng.integers(0, PRIME, max(rows, 0)), columns)

    @property
    def rows(self) -> int:
        return len(self.a)

    def cells_of(self, key: int) -> tuple[int, ...]:
        """The column of a digest in each row."""
        if not 0 <= key < PRIME:
            raise InvalidArgument(
                f"a digest must be in 0 ... {PRIME - 1}", got=key, hint="use digest(key) for any other key"
            )
        return tuple((a * key + b) % PRIME % self.columns for a, b in self._pairs())

    def cells(self, keys: Digests) -> NDArray[np.int64]:
        """The columns of many digests: an array of shape (keys, rows)."""
        check_digests(keys)
        product = keys[:, None] * self.a[None, :]
        product += self.b[None, :]
        product %= PRIME
        product %= self.columns
        return product

    def same_as(self, other: CarterWegman) -> bool:
        return (
            self.columns == other.columns and np.array_equal(self.a, other.a) and np.array_equal(self.b, other.b)
        )

    def sql(self, key: str) -> list[str]:
        """The same functions as Spark SQL, given an expression for the digest.

        >>> CarterWegman(np.array([3]), np.array([5]), 55).sql("x")
        ['((3L * (x) + 5L) % 2147483647L) % 55L']
        """
        return [f"(({a}L * ({key}) + {b}L) % {PRIME}L) % {self.columns}L" for a, b in self._pairs()]

    def _pairs(self) -> list[tuple[int, int]]:
        return list(zip(self.a.tolist(), self.b.tolist(), strict=True))


def digest_sql(*columns: str) -> str:
    """`digest` as Spark SQL over columns or expressions.

    >>> digest_sql("user", "item")
    'pmod(xxhash64(user, item), 2147483647L)'
    """
    return f"pmod(xxhash64({', '.join(columns)}), {PRIME}L)"


def check_digests(keys: Digests) -> None:
    """Refuse what the family is not defined on: beyond p, different keys would always collide."""
    if keys.dtype != np.int64:
        raise InvalidArgument("digests must be 64-bit integers", got=keys.dtype, hint="use digests(keys)")
    if len(keys) and not (int(keys.min()) >= 0 and int(keys.max()) < PRIME):
        raise InvalidArgument(
            f"digests must be in 0 ... {PRIME - 1}",
            got=f"{keys.min()} ... {keys.max()}",
            hint="use digests(keys) for any other keys",
        )


@quick
def cell_of(a: int, b: int, key: int, columns: int) -> int:
    """((a·key + b) mod p) mod c; no division by p, as 2³¹ ≡ 1: the upper bits are added to the lower ones."""
    value = a * key + b
    value = (value & PRIME) + (value >> 31)
    value = (value & PRIME) + (value >> 31)
    if value >= PRIME:
        value -= PRIME
    rest = np.uint32(value) % np.uint32(columns)
    return int(rest)


def _bytes_of(value: object) -> bytes | None:
    """What Spark feeds to the hash for a value; None for a null."""
    if value is None:
        return None
    for kinds, encode in _ENCODERS:
        if isinstance(value, kinds):
            try:
                return encode(value)
            except (struct.error, UnicodeEncodeError, TypeError) as error:
                raise InvalidArgument(
                    "a value that Spark cannot hold cannot be hashed", got=repr(value)
                ) from error
    raise InvalidArgument(
        "a key must be a string, bytes, a number, a boolean, a date or a timestamp",
        got=f"{value!r} ({type(value).__name__})",
        hint="use one of its fields, or several: digest(a, b)",
    )


def _float(form: str) -> Callable[[Any], bytes]:
    def encode(value: Any) -> bytes:
        # Spark takes −0.0 for 0.0, and Java knows one NaN only.
        return struct.pack(form, float("nan") if value != value else value + 0.0 if value else 0.0)

    return encode


def _micros(value: datetime.datetime) -> bytes:
    return struct.pack("<q", (value - _EPOCH) // datetime.timedelta(microseconds=1))


# In this order: a bool is an int to Python, a datetime a date, and numpy's float64 a float.
_ENCODERS: tuple[tuple[tuple[type, ...], Callable[[Any], bytes]], ...] = (
    ((str,), lambda value: value.encode()),
    ((bytes, bytearray), bytes),
    ((bool, np.bool_), lambda value: struct.pack("<i", value)),
    ((np.int8, np.int16, np.int32), lambda value: struct.pack("<i", value)),
    ((int, np.int64), lambda value: struct.pack("<q", value)),
    ((np.float32,), _float("<f")),
    ((float,), _float("<d")),
    ((datetime.datetime,), _micros),
    ((datetime.date,), lambda value: struct.pack("<i", (value - _EPOCH.date()).days)),
)


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _MASK


def _round(lane: int, word: int) -> int:
    return _rotated((lane + word * _P2) & _MASK, 31) * _P1 & _MASK


def _xxh64(data: bytes, seed: int) -> int:
    """XXH64; Spark hashes a BIGINT as its 8 bytes and an INT as its 4, least first."""
    size, at = len(data), 0
    if size >= 32:
        lanes = [(seed + _P1 + _P2) & _MASK, (seed + _P2) & _MASK, seed, (seed - _P1) & _MASK]
        while at + 32 <= size:
            words = struct.unpack_from("<4Q", data, at)
            lanes = [_round(lane, word) for lane, word in zip(lanes, words, strict=True)]
            at += 32
        state = sum(_rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
        for lane in lanes:
            state = ((state ^ _round(0, lane)) * _P1 + _P4) & _MASK
    else:
        state = (seed + _P5) & _MASK
    state = (state + size) & _MASK
    while at + 8 <= size:
        state = (_rotated(state ^ _round(0, int.from_bytes(data[at : at + 8], "little")), 27) * _P1 + _P4) & _MASK
        at += 8
    if at + 4 <= size:
        state ^= int.from_bytes(data[at : at + 4], "little") * _P1 & _MASK
        state = (_rotated(state, 23) * _P2 + _P3) & _MASK
        at += 4
    for byte in data[at:]:
        state = _rotated(state ^ (byte * _P5 & _MASK), 11) * _P1 & _MASK
    state = (state ^ state >> 33) * _P2 & _MASK
    state = (state ^ state >> 29) * _P3 & _MASK
    return state ^ state >> 32


_U1, _U2, _U3, _U4, _U5 = (np.uint64(prime) for prime in (_P1, _P2, _P3, _P4, _P5))
_LONG_START = np.uint64((SEED + _P5 + 8) & _MASK)
_INT_START = np.uint64((SEED + _P5 + 4) & _MASK)


@compiled
def _finished(state: np.uint64) -> int:
    """The avalanche at the end of XXH64, and the result modulo p as a signed number."""
    state ^= state >> np.uint64(33)
    state *= _U2
    state ^= state >> np.uint64(29)
    state *= _U3
    state ^= state >> np.uint64(32)
    # Python's modulo: never negative, as Spark's pmod.
    return int(np.int64(state) % np.int64(PRIME))


@compiled
def _digest_longs(keys: NDArray[np.int64]) -> Digests:
    found = np.empty(len(keys), np.int64)
    for i in range(len(keys)):
        word = np.uint64(keys[i]) * _U2
        word = (word << np.uint64(31) | word >> np.uint64(33)) * _U1
        state = _LONG_START ^ word
        found[i] = _finished((state << np.uint64(27) | state >> np.uint64(37)) * _U1 + _U4)
    return found


@compiled
def _digest_ints(keys: NDArray[np.int32]) -> Digests:
    found = np.empty(len(keys), np.int64)
    for i in range(len(keys)):
        state = _INT_START ^ (np.uint64(np.uint32(keys[i])) * _U1)
        found[i] = _finished((state << np.uint64(23) | state >> np.uint64(41)) * _U2 + _U3)
    return found
