import numpy as np
import pytest

from streamshed.network.expressions.analysis import invert, passing
from streamshed.network.expressions.expression import ExpressionError, parse
from streamshed.network.expressions.ranges import Ranges

COLUMNS = {
    "a": np.array([1.0, 5.0, -3.0]),
    "b": np.array([2.0, 2.0, 2.0]),
    "ok": np.array([True, False, True]),
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a + b * 2", [5, 9, 1]),
        ("(a + b) * 2", [6, 14, -2]),
        ("a - b - 1", [-2, 2, -6]),
        ("-a", [-1, -5, 3]),
        ("a % b", [1, 1, -1]),
        ("abs(a) + least(a, b)", [2, 7, 0]),
        ("a > 0 AND ok", [True, False, False]),
        ("a > 4 or ok", [True, True, True]),
        ("NOT ok", [False, True, False]),
        ("a BETWEEN 1 AND 4", [True, False, False]),
        ("a NOT IN (1, 5)", [False, False, True]),
        ("a <> 1", [False, True, True]),
    ],
)
def test_evaluates_whole_columns(text, expected):
    assert parse(text).evaluate(COLUMNS).tolist() == expected


@pytest.mark.parametrize(
    "text", ["a - (b - 1)", "a = 1 AND (b = 2 OR ok)", "NOT (a > 1)", "-(a + b) / 2", "'it''s'"]
)
def test_sql_parses_back_to_the_same_tree(text):
    tree = parse(text)
    assert parse(tree.sql()) == tree


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("", 1),
        ("a >", 4),
        ("a > 1 b", 7),
        ("(a", 3),
        ("a ? 1", 3),
        ("sin(a)", 1),
        ("least(a)", 1),
        ("a > > 1", 5),
    ],
)
def test_what_does_not_parse_names_the_column(text, column):
    with pytest.raises(ExpressionError, match=f"at column {column}\n"):
        parse(text)


def test_deep_nesting_is_refused_and_not_a_crash():
    with pytest.raises(ExpressionError, match="nested deeper"):
        parse("(" * 4000 + "a" + ")" * 4000)
    with pytest.raises(ExpressionError, match="operators in a row"):
        parse(" AND ".join(["a"] * 1000))
    with pytest.raises(ExpressionError, match="operators in a row"):
        parse("NOT " * 1000 + "a")


def test_fields_are_those_read():
    assert parse("a * 2 > abs(c) AND ok").fields() == {"a", "c", "ok"}


@pytest.mark.parametrize(
    ("text", "where", "exact"),
    [
        ("x > 5", "x > 5", True),
        ("5 >= x", "x <= 5", True),
        ("NOT x < 5", "x >= 5", True),
        ("x > 1 AND x <= 3", "x > 1 AND x <= 3", True),
        ("x < 1 OR x > 3", "x < 1 OR x > 3", True),
        ("x * -2 > 10", "x < -5", True),
        ("10 - x < 4", "x > 6", True),
        ("x > 5 AND y", "x > 5", False),
        ("x > 5 OR y > 1", "TRUE", False),
        ("x * x > 4", "TRUE", False),
    ],
)
def test_what_a_predicate_lets_pass(text, where, exact):
    found = passing(parse(text))
    assert found.of("x").render("x") == where
    assert found.exact is exact


@pytest.mark.parametrize(
    "text", ["x * 2 + 1", "3 - x", "-(x / 4) - 2", "(x - 140) / 60", "2 * (x + 5)", "exp(x)", "ln(x)"]
)
def test_an_inverse_undoes_its_expression(text):
    inverse = invert(parse(text), "y")
    assert inverse is not None
    values = np.array([0.5, 1.0, 7.25])
    images = parse(text).evaluate({"x": values})
    assert np.allclose([inverse(float(image)) for image in images], values)
    assert inverse.increasing == bool(images[1] > images[0])


def test_a_preimage_under_a_falling_map_turns_the_ends_round():
    inverse = invert(parse("100 - x"), "y")
    assert inverse is not None
    assert inverse.preimage(Ranges.between(20, 30)).render("x") == "x > 70 AND x <= 80"


@pytest.mark.parametrize("text", ["x * x", "x + x", "abs(x)", "x * 0", "a + b", "5"])
def test_what_has_no_inverse_gets_none(text):
    assert invert(parse(text)) is None
