import numpy as np
import pytest

from streamshed.network.expressions.ranges import Ranges
from streamshed.network.qos import (
    LINEAR,
    Graph,
    Histogram,
    LatencyGraph,
    LossGraph,
    QoS,
    ValueGraph,
    total,
)

# LSRM Table 1 and Figure 8: [0, 50] has utility 0.2 and 40 % of the values, [51, 100] has 1.0 and 60 %.
FIGURE_8 = ValueGraph.of("value", [[0, 50, 0.2], [51, 100, 1.0]])
FIGURE_8_HISTOGRAM = Histogram.of([0, 50, 51, 100], [0.4, 0.0, 0.6])


def test_table_1_gives_the_graph_of_figure_8():
    graph = FIGURE_8.loss_graph(FIGURE_8_HISTOGRAM)
    assert [x for x, _ in graph.points] == pytest.approx([0, 60, 100])
    assert [u for _, u in graph.points] == pytest.approx([0, 1 - 0.08 / 0.68, 1])
    assert round(graph(60), 2) == 0.88


@pytest.mark.parametrize(
    ("percent", "keeps"),
    [(20, "value >= 25"), (40, "value >= 51"), (70, "value > 75"), (100, "FALSE"), (0, "TRUE")],
)
def test_predicates_of_figure_8(percent, keeps):
    order = FIGURE_8.order(FIGURE_8_HISTOGRAM)
    assert (~order.dropped(percent)).render("value", integers=True) == keeps


def test_the_least_useful_values_go_first_wherever_they_lie():
    graph = ValueGraph.of("v", [[0, 50, 0.9], [50, 80, 0.1], [80, 100, 1.0]])
    dropped = graph.order(Histogram.uniform(0, 100)).dropped(40)
    assert dropped.render("v") == "v < 10 OR (v >= 50 AND v < 80)"


def test_values_outside_all_intervals_are_worth_nothing_and_go_first():
    graph = ValueGraph.of("v", [[20, 50, 0.5], [50, 100, 1.0]])
    order = graph.order(Histogram.uniform(0, 100))
    assert order.dropped(20).render("v") == "v < 20"
    assert order.loss_graph()(80) == pytest.approx(1.0)


def test_a_histogram_decides_how_much_of_an_interval_goes():
    skewed = Histogram.of([0, 10, 50, 100], [0.3, 0.1, 0.6])
    graph = ValueGraph.of("v", [[0, 50, 0.2], [50, 100, 1.0]])
    assert graph.order(skewed).dropped(30).render("v") == "v < 10"


def test_sloping_utility_is_dropped_in_chunks():
    graph = ValueGraph.of("v", [[0, 100, 1.0, 0.0]])
    assert graph.order(Histogram.uniform(0, 100), chunk=25).dropped(50).render("v") == "v >= 50"
    loss = graph.loss_graph(Histogram.uniform(0, 100), chunk=25)
    assert loss(75) == pytest.approx(1 - 0.125 / 2)


@pytest.mark.parametrize(
    ("points", "piece"),
    [
        ([(0, 0), (50, 0.2), (100, 1)], "from 50 to 100"),
        ([(0, 0), (20, 0.5), (60, 0.6), (100, 1)], "from 60 to 100"),
    ],
)
def test_a_graph_that_is_not_concave_names_the_piece(points, piece):
    with pytest.raises(ValueError, match=f"not concave: its slope rises in the piece {piece}"):
        LossGraph.of(points)


@pytest.mark.parametrize(
    ("kind", "points", "says"),
    [
        (LossGraph, [(0, 0), (90, 1)], "from 0 to 100"),
        (LossGraph, [(0, 1), (100, 0.5)], "must not fall"),
        (LossGraph, [(0, 0), (100, 2)], "between 0 and 1"),
        (LossGraph, [(0, 0), (0, 1), (100, 1)], "one utility"),
        (LossGraph, [(100, 1)], "two points"),
        (LatencyGraph, [(1, 1), (2, 0)], "begins at 0"),
        (LatencyGraph, [(0, 0), (2, 1)], "must not rise"),
        (Graph, [(0, 0), (float("inf"), 1)], "finite"),
    ],
)
def test_bad_graphs_are_refused(kind, points, says):
    with pytest.raises(ValueError, match=says):
        kind.of(points)


@pytest.mark.parametrize(
    ("intervals", "says"),
    [
        ([[0, 50, 1], [40, 60, 1]], r"overlap\n  got:  \[0, 50\] and \[40, 60\]"),
        ([[5, 5, 1]], "end above"),
        ([[0, 1, 2]], "between 0 and 1"),
        ([], "at least one"),
    ],
)
def test_bad_value_graphs_are_refused(intervals, says):
    with pytest.raises(ValueError, match=says):
        ValueGraph.of("v", intervals)


def test_slopes_by_piece_and_their_sum():
    # LSRM 4.3.2: the loss at location F is (1 − 0.7)/50 for the first piece, (0.7 − 0)/50 for the second.
    f = LossGraph.of([(100, 1.0), (50, 0.7), (0, 0.0)])
    assert f.piece_below(100).slope == pytest.approx(0.3 / 50)
    assert f.piece_below(50).slope == pytest.approx(0.7 / 50)
    both = total([f, LINEAR])
    assert both(50) == pytest.approx(1.2)
    assert both.piece_below(100).slope == pytest.approx(0.3 / 50 + 0.01)


def test_value_utility_of_many_values():
    graph = ValueGraph.of("v", [[0, 50, 0.2], [50, 100, 1.0]])
    assert graph.many(np.array([-1.0, 0.0, 49.9, 50.0, 100.0, 101.0])).tolist() == [0, 0.2, 0.2, 1, 1, 0]


def test_a_latency_graph_has_its_knee_where_utility_begins_to_fall():
    assert LatencyGraph.of([(0, 1), (2, 1), (10, 0)]).knee == 2
    assert LatencyGraph.of([(0, 1), (10, 0)]).knee == 0


def test_a_loss_graph_is_given_or_derived_or_linear():
    given = LossGraph.of([(0, 0), (100, 1)])
    assert QoS(loss=given, value=FIGURE_8).loss_graph(FIGURE_8_HISTOGRAM) is given
    assert QoS(value=FIGURE_8).loss_graph(FIGURE_8_HISTOGRAM)(60) == pytest.approx(0.882, abs=1e-3)
    assert QoS(value=FIGURE_8).loss_graph() is LINEAR
    assert QoS().loss_graph() is LINEAR


def test_histograms():
    histogram = Histogram.of([0, 10, 20], [1, 3])
    assert histogram.share(Ranges.between(5, 15)) == pytest.approx(0.125 + 0.375)
    assert histogram.quantile(0, 20, 0.5) == pytest.approx(10 + 10 / 3)
    restricted = histogram.restrict(Ranges.between(5, 10))
    assert restricted is not None
    assert restricted.share(Ranges.between(0, 10)) == pytest.approx(1.0)
    assert histogram.restrict(Ranges.between(30, 40)) is None
    with pytest.raises(ValueError, match="ascending edges"):
        Histogram.of([1, 0], [1])
    with pytest.raises(ValueError, match="negative"):
        Histogram.of([0, 1, 2], [1, -1])
