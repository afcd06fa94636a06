"""Hashes: the published XXH64 vectors, and the family's promise. Against Spark: tests/spark/test_sketch.py."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamshed.errors import InvalidArgument
from streamshed.sketch.hashing import PRIME, CarterWegman, digest, digests, xxhash64


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0xEF46DB3751D8E999),
        (b"a", 0xD24EC4F1A98C6E5B),
        (b"as", 0x1C330FB2D66BE179),
        (b"asd", 0x631C37CE72A97393),
        (b"asdf", 0x415872F599CEA71E),
        (b"Call me Ishmael. Some years ago--never mind how long precisely-", 0x02A2E85470D6FD96),
    ],
)
def test_published_vectors_of_xxh64(data: bytes, expected: int) -> None:
    assert xxhash64(data, seed=0) % 2**64 == expected


def test_columns_are_chained_and_nulls_leave_the_hash_alone() -> None:
    assert xxhash64("a", 5) == xxhash64(5, seed=xxhash64("a"))
    assert xxhash64("a", None, 5) == xxhash64("a", 5)
    assert xxhash64("a", 5) != xxhash64(5, "a")


def test_zeros_and_nans_have_one_hash() -> None:
    assert xxhash64(-0.0) == xxhash64(0.0)
    assert xxhash64(np.float32(-0.0)) == xxhash64(np.float32(0.0))
    assert xxhash64(float("nan")) == xxhash64(-float("nan"))


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_compiled_digests_of_longs(keys: list[int]) -> None:
    assert digests(np.array(keys, np.int64)).tolist() == [digest(key) for key in keys]


@given(st.lists(st.integers(-(2**31), 2**31 - 1)))
def test_compiled_digests_of_ints(keys: list[int]) -> None:
    assert digests(np.array(keys, np.int32)).tolist() == [digest(np.int32(key)) for key in keys]


def test_digests_of_strings_and_bytes() -> None:
    assert digests(np.array(["x", "λ"])).tolist() == [digest("x"), digest("λ")]
    assert digests(np.array([b"x", b"yz"], object)).tolist() == [digest(b"x"), digest(b"yz")]


@given(st.integers(0, PRIME - 1), st.integers(1, 2**20), st.integers(0, 99))
def test_cells_one_by_one_and_vectorised(key: int, columns: int, seed: int) -> None:
    hashes = CarterWegman.draw(4, columns, seed)
    cells = hashes.cells_of(key)
    assert all(0 <= cell < columns for cell in cells)
    assert tuple(hashes.cells(np.array([key]))[0].tolist()) == cells
    assert cells == tuple(
        (int(a) * key + int(b)) % PRIME % columns for a, b in zip(hashes.a, hashes.b, strict=True)
    )


@pytest.mark.parametrize(("x", "y"), [(0, 1), (7, 4095), (1, 1 + 55), (0, PRIME - 1)])
def test_two_keys_collide_with_probability_at_most_one_in_c(x: int, y: int) -> None:
    """2-universality, over the draw of the function: 200,000 functions, five standard errors of room."""
    columns, draws = 55, 200_000
    hashes = CarterWegman.draw(draws, columns, seed=3)
    cells = hashes.cells(np.array([x, y]))
    share = float(np.mean(cells[0] == cells[1]))
    assert share <= 1 / columns + 5 * np.sqrt(1 / columns / draws)


@pytest.mark.parametrize("key", [[1], {"a": 1}, {1}, (1, 2), object(), 1j])
def test_a_key_of_another_kind_is_refused(key: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"a key must be a string, bytes, a number") as error:
        digest(key)
    assert type(key).__name__ in str(error.value)


@pytest.mark.parametrize("key", [2**63, -(2**63) - 1, "\ud800", datetime.datetime(2026, 1, 1)])
def test_a_value_that_spark_cannot_hold_is_refused(key: Any) -> None:
    with pytest.raises(InvalidArgument, match="Spark cannot hold"):
        digest(key)


def test_a_null_key_is_refused() -> None:
    for key in ((None,), (None, None), ()):
        with pytest.raises(InvalidArgument, match="a null cannot be a key"):
            digest(*key)


@pytest.mark.parametrize("keys", [np.array([-1]), np.array([PRIME]), np.array([0.5])])
def test_cells_need_digests(keys: Any) -> None:
    with pytest.raises(InvalidArgument, match="digests must be"):
        CarterWegman.draw(2, 5, 1).cells(keys)
    if keys.dtype == np.int64:
        with pytest.raises(InvalidArgument, match="a digest must be"):
            CarterWegman.draw(2, 5, 1).cells_of(int(keys[0]))


def test_hashes_need_rows_columns_and_factors_in_range() -> None:
    with pytest.raises(InvalidArgument, match="at least one row"):
        CarterWegman.draw(0, 5, 1)
    with pytest.raises(InvalidArgument, match="at least one row"):
        CarterWegman.draw(1, 0, 1)
    with pytest.raises(InvalidArgument, match="factors"):
        CarterWegman(np.array([0]), np.array([0]), 5)
