import numpy as np
import pytest

from streamshed.network import Builder
from streamshed.network.expressions.ranges import Ranges
from streamshed.policies.intervals import backward, combined, forward, places


def chain():
    return (
        Builder("n")
        .source("s", "x DOUBLE, k INT")
        .source("t", "x DOUBLE, k INT")
        .filter("h", "s", "x > 0")
        .filter("f", "h", "x > 1")
        .map("m", "t", {"x": "x / 2", "k": "k"})
        .union("u", ["f", "m"])
        .map("n", "u", {"y": "10 - x", "k": "k"})
        .output("o", "n")
        .output("other", "h")
        .build()
    )


def squared(**inverse):
    return (
        Builder("n")
        .source("s", "x DOUBLE")
        .filter("f", "s", "x > -5")
        .map("m", "f", {"y": "x * x"}, inverse=inverse or None)
        .filter("g", "m", "y < 80")
        .map("n", "g", {"z": "y + 1"})
        .output("o", "n")
        .build()
    )


SAMPLE = {"x": np.random.default_rng(1).uniform(-5, 10, 20_000)}


def test_drops_belong_to_sources_and_below_splits():
    assert places(chain(), "o") == ["h->f", "t->m"]
    assert places(chain(), "other") == ["h->other"]


def test_backward_goes_through_filters_unions_and_invertible_maps():
    found = {one.arc: one.where for one in backward(chain(), "o", "y", Ranges.between(2, 4))}
    assert found == {"h->f": "x > 6 AND x <= 8", "t->m": "x > 12 AND x <= 16"}


def test_backward_stops_below_a_box_without_an_inverse():
    (found,) = backward(squared(), "o", "z", Ranges.between(1, 5))
    assert (found.arc, found.where, found.how) == ("m->g", "y >= 0 AND y < 4", "backward")
    assert found.ranges == Ranges.between(0, 4)


def test_backward_uses_a_declared_inverse():
    (found,) = backward(squared(y="x = sqrt(y)"), "o", "z", Ranges.between(5, 10))
    assert (found.arc, found.where) == ("s->f", "x >= 2 AND x < 3")


def test_forward_finds_the_predicate_by_trial():
    # Unwanted: z in [1, 5), that is y in [0, 4), that is x in (−2, 2).
    found = forward(squared(), "s->f", "x", "o", "z", Ranges.between(1, 5), SAMPLE)
    assert found is not None
    ((low, high),) = found.ranges
    assert (low, high) == pytest.approx((-2, 2), abs=0.01)
    assert found.covered == pytest.approx(1.0)
    assert found.missed <= 0.01


def test_forward_narrows_until_little_of_the_rest_is_hit():
    # Unwanted: z in [26, 37), that is |x| in [5, 6): within the sample only x in [5, 6).
    noise = np.random.default_rng(2)
    sample = {"x": noise.uniform(0, 10, 20_000), "v": np.zeros(20_000)}
    sample["v"] = sample["x"] + noise.normal(0, 0.5, 20_000)
    network = Builder("n").source("s", "x DOUBLE, v DOUBLE").map("m", "s", {"y": "x * x"}).output("o", "m").build()
    loose = forward(network, "s->m", "v", "o", "y", Ranges.between(25, 36), sample, tolerance=0.2)
    tight = forward(network, "s->m", "v", "o", "y", Ranges.between(25, 36), sample, tolerance=0.02)
    assert loose is not None
    assert tight is not None
    assert tight.missed <= 0.02 < loose.missed <= 0.2
    assert 0 < tight.covered < loose.covered


def test_forward_gives_up_where_there_is_nothing_to_find():
    assert forward(squared(), "s->f", "x", "o", "z", Ranges.between(500, 600), SAMPLE) is None
    with pytest.raises(ValueError, match="lacks the column"):
        forward(squared(), "s->f", "nope", "o", "z", Ranges.between(0, 1), SAMPLE)


def test_forward_through_an_aggregate_and_a_udf():
    network = (
        Builder("n")
        .source("s", "k INT, x DOUBLE")
        .udf("u", "s", "lib:double", ["x"], "d DOUBLE")
        .aggregate("g", "u", "1 minute", {"m": "avg(d)"}, by=["k"])
        .output("o", "g")
        .build()
    )
    rng = np.random.default_rng(3)
    keys = rng.integers(0, 10, 5000).astype(float)
    sample = {"k": keys, "x": keys + rng.normal(0, 0.1, 5000)}
    twice = {"u": lambda x: 2 * x}
    found = forward(network, "s->u", "k", "o", "m", Ranges.between(-1, 7), sample, functions=twice)
    assert found is not None
    assert found.where == "k <= 3"
    with pytest.raises(ValueError, match="no function given"):
        forward(network, "s->u", "k", "o", "m", Ranges.between(-1, 7), sample)


def test_combined_goes_backward_then_forward():
    (found,) = combined(squared(), "o", "z", Ranges.between(1, 5), {})
    assert (found.arc, found.how, found.where) == ("s->f", "forward", "x > -2 AND x < 2")
    (found,) = combined(squared(), "o", "z", Ranges.between(26, 37), {})
    assert found.where == "(x > -6 AND x <= -5) OR (x >= 5 AND x < 6)"


def two_fields():
    """A map of two fields, which ranges of one say nothing of."""
    return Builder("n").source("s", "x DOUBLE, w DOUBLE").map("m", "s", {"y": "x + w"}).output("o", "m").build()


def test_combined_asks_a_sample_where_ranges_cannot_be_pushed():
    noise = np.random.default_rng(4)
    sample = {"x": noise.uniform(0, 10, 20_000), "w": noise.uniform(0, 0.01, 20_000)}
    (found,) = combined(two_fields(), "o", "y", Ranges.between(-1, 4), {"s->m": sample})
    assert (found.arc, found.field, found.how) == ("s->m", "x", "forward")
    assert found.ranges.intervals[0][1] == pytest.approx(4, abs=0.05)


def test_combined_stays_where_the_way_ended_without_a_sample():
    assert combined(two_fields(), "o", "y", Ranges.between(1, 5), {}) == backward(
        two_fields(), "o", "y", Ranges.between(1, 5)
    )
    whole = combined(chain(), "o", "y", Ranges.between(2, 4), {"h->f": SAMPLE})
    assert [one.how for one in whole] == ["backward", "backward"]
