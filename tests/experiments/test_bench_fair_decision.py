"""The benchmark of fair shedding's decision measures what it says."""

from streamshed.lab.experiments.bench_fair_decision import exponent, run, waiting


def test_it_tells_time_share_and_growth_for_every_size():
    told: list[str] = []
    result = run(
        lambda done, total, what: told.append(what), queries=(10, 20), batches=(100, 400), repeats=2, seed=3
    )
    assert [(row["queries"], row["batches"]) for row in result["sizes"]] == [
        (10, 100),
        (10, 400),
        (20, 100),
        (20, 400),
    ]
    assert all(row["seconds"] == min(row["seconds_all"]) for row in result["sizes"])
    assert all(row["share_of_interval"] == row["seconds"] / 0.25 for row in result["sizes"])
    assert set(result["exponent"]) == {"10", "20"}
    assert told[-1] == "done"


def test_the_exponent_is_the_slope():
    assert round(exponent([{"batches": 2**n, "seconds": 4.0**n} for n in range(1, 5)]), 9) == 2.0


def test_a_query_s_tuples_count_alike():
    buffer = waiting(5, 100, seed=1)
    for query in range(5):
        mine = buffer.query == query
        per_tuple = buffer.sic[mine] / buffer.tuples[mine]
        assert per_tuple.max() - per_tuple.min() < 1e-15
