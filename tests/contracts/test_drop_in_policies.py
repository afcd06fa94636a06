"""What every drop-in policy owes (DESIGN: one contract): checked on arbitrary shares."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamshed.loop import Policy
from streamshed.policies import NoShedding, RandomShedding

POLICIES = [NoShedding(), RandomShedding("s")]

shares = st.floats(0, 1)


def kept(policy: Policy, share: float) -> float:
    found = 1.0
    for drop in policy.choose(share).drops:
        found *= drop.keep
    return found


@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: p.name)
@given(share=shares)
def test_keeps_are_fractions_and_plans_repeat(policy: Policy, share: float) -> None:
    choice = policy.choose(share)
    assert all(0.0 <= drop.keep <= 1.0 for drop in choice.drops)
    assert choice.share == kept(policy, share)
    assert choice == policy.choose(share)


@given(share=shares)
def test_what_is_kept_fits(share: float) -> None:
    assert kept(RandomShedding(), share) <= share


@given(share=shares, less=shares)
def test_a_larger_excess_never_keeps_more(share: float, less: float) -> None:
    assert kept(RandomShedding(), share * less) <= kept(RandomShedding(), share)
