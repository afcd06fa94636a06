"""Cost models: exact on data that follows them, sane on any."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamshed.loop import AffineCost, MeanCost


def test_mean_cost_is_dissp_equations_5_2_and_5_3() -> None:
    model = MeanCost()
    model.observe(duration=0.300, arrived=5000, kept=5000)
    assert model.cost == pytest.approx(0.06e-3)
    # The figure's 4,100 is this, smoothed; unsmoothed it is 250 ms / 0.06 ms.
    assert model.fitting(arrived=10_000, allowed=0.250) == pytest.approx(4166.67, abs=0.01)


def test_mean_cost_forgets_what_left_its_window_of_40() -> None:
    model = MeanCost()
    for _ in range(40):
        model.observe(1.0, 10, 10)
    assert model.cost == pytest.approx(0.1)
    for _ in range(40):
        model.observe(1.0, 100, 100)
    assert model.cost == pytest.approx(0.01)


def test_mean_cost_counts_only_processed_rows() -> None:
    model = MeanCost()
    model.observe(duration=1.0, arrived=1000, kept=10)
    assert model.cost == pytest.approx(0.1)


def test_a_model_that_saw_nothing_lets_everything_through() -> None:
    for model in (MeanCost(), AffineCost()):
        assert not model.ready
        assert model.fitting(arrived=123, allowed=1.0) == 123


@given(
    fixed=st.floats(0.05, 1.0),
    per_kept=st.floats(1e-6, 1e-3),
    share=st.floats(0.01, 0.5),
    sizes=st.lists(
        st.tuples(st.integers(2_000, 10_000), st.floats(0.1, 1.0)), min_size=12, max_size=30, unique=True
    ),
)
def test_affine_cost_predicts_the_large_batches_of_data_that_is_affine(
    fixed: float, per_kept: float, share: float, sizes: list[tuple[int, float]]
) -> None:
    model = AffineCost(forgetting=1.0)
    per_arrived = share * per_kept
    for arrived, keep in sizes * 4:  # a size seen once only is taken for an odd batch, by design
        kept = int(arrived * keep)
        model.observe(fixed + per_kept * kept + per_arrived * arrived, arrived, kept)
    # Least squares is about the large batches, and so is the bound. Sizes as one job has them, within five times.
    arrived, keep = max(sizes, key=lambda size: size[0] * (size[1] + share))
    kept = int(arrived * keep)
    assert model.predict(arrived, kept) == pytest.approx(fixed + per_kept * kept + per_arrived * arrived, rel=0.25)


@given(
    st.lists(
        st.tuples(st.floats(1e-3, 100), st.integers(1, 10**7), st.floats(0, 1)),
        min_size=1,
        max_size=40,
    )
)
def test_affine_cost_is_never_negative_and_never_silly(samples: list[tuple[float, int, float]]) -> None:
    model = AffineCost()
    for duration, arrived, keep in samples:
        model.observe(duration, arrived, int(arrived * keep))
        assert min(model.fixed, model.per_kept, model.per_arrived) >= 0
        fit = model.fitting(arrived, 1.0)
        assert 0 <= fit <= arrived
        # More time never fits fewer rows.
        assert model.fitting(arrived, 2.0) >= fit


def test_fitting_is_the_inverse_of_predict() -> None:
    model = AffineCost()
    for arrived, kept in ((1000, 1000), (4000, 1000), (3000, 2000), (8000, 1000), (2000, 2000), (9000, 4000)):
        model.observe(0.2 + 100e-6 * kept + 5e-6 * arrived, arrived, kept)
    fit = model.fitting(arrived=50_000, allowed=1.0)
    assert 0 < fit < 50_000
    assert model.predict(50_000, fit) == pytest.approx(1.0)


def test_an_odd_batch_moves_the_prediction_little_and_a_lasting_change_moves_it_all() -> None:
    def trained() -> AffineCost:
        model = AffineCost()
        for i in range(20):
            rows = 10_000 + 1000 * (i % 5)
            model.observe(0.2 + 100e-6 * rows, rows, rows)
        return model

    usual = 0.2 + 1.2
    odd = trained()
    odd.observe(4 * usual, 12_000, 12_000)
    odd.observe(usual, 12_000, 12_000)
    odd.observe(usual, 12_000, 12_000)
    assert odd.predict(12_000, 12_000) < 1.5 * usual
    changed = trained()
    for _ in range(5):
        changed.observe(2 * usual, 12_000, 12_000)
    assert changed.predict(12_000, 12_000) == pytest.approx(2 * usual, rel=0.15)


def test_equal_samples_give_equal_coefficients() -> None:
    samples = [(0.5 + 0.01 * i, 1000 + 37 * i, 900 + 11 * i) for i in range(30)]
    models = [AffineCost(), AffineCost()]
    for model in models:
        for sample in samples:
            model.observe(*sample)
    assert (models[0].fixed, models[0].per_kept, models[0].per_arrived) == (
        models[1].fixed,
        models[1].per_kept,
        models[1].per_arrived,
    )
