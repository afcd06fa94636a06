"""What every drop-in policy owes (DESIGN: one contract): checked on arbitrary overloads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamshed.controller import Policy
from streamshed.policies import NoShedding, RandomShedding
from streamshed.records import Overload

POLICIES = [NoShedding(), RandomShedding("s")]

overloads = st.builds(
    Overload,
    arriving=st.floats(0, 1e9),
    fitting=st.floats(0, 1e9),
    rate=st.floats(0, 1e9),
    predicted=st.floats(0, 1e3),
    allowed=st.floats(0, 1e3),
)


def kept(policy: Policy, overload: Overload) -> float:
    share = 1.0
    for drop in policy.drops(overload):
        share *= drop.keep
    return share * overload.arriving


@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: p.name)
@given(overload=overloads)
def test_keeps_are_fractions_and_plans_repeat(policy: Policy, overload: Overload) -> None:
    drops = policy.drops(overload)
    assert all(0.0 <= drop.keep <= 1.0 for drop in drops)
    assert drops == policy.drops(overload)


@given(overload=overloads)
def test_the_planned_load_fits(overload: Overload) -> None:
    assert kept(RandomShedding(), overload) <= max(overload.fitting, 0) * (1 + 1e-9) + 1e-9


@given(overload=overloads, more=st.floats(1, 100))
def test_a_larger_excess_never_keeps_more(overload: Overload, more: float) -> None:
    worse = Overload(
        overload.arriving * more, overload.fitting, overload.rate, overload.predicted, overload.allowed
    )
    policy = RandomShedding()
    assert sum(d.keep for d in policy.drops(worse)) <= sum(d.keep for d in policy.drops(overload)) + 1e-12
