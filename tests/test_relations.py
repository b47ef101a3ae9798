"""Relations: changes of the input that must not change results."""

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import runoff
from reference import BOUNDS
from runoff import spreads
from test_reference import ensembles, spreads_for


def same(a, b):
    np.testing.assert_array_equal(a.prediction, b.prediction)
    np.testing.assert_array_equal(a.runner_up, b.runner_up)
    np.testing.assert_array_equal(a.radius, b.radius)


every = pytest.mark.parametrize(("election", "bound"), BOUNDS)


@every
@given(data=st.data(), scores=ensembles())
def test_a_spread_with_d_1_equals_no_spread(election, bound, data, scores):
    order = data.draw(st.permutations(range(scores.shape[1])))
    spread = [[j] for j in order]
    alone = runoff.certify(scores, election=election, bound=bound)
    spread_out = runoff.certify(scores, election=election, bound=bound, spread=spread)
    same(alone, spread_out)
    attack = spread_out.attack(0)
    assert [order[b] for b in attack.buckets] == [order[b] for b in sorted(attack.buckets)]
    assert {order[b] for b in attack.buckets} == set(attack.members)


@every
@given(data=st.data(), scores=ensembles())
def test_permuting_inputs_changes_nothing(election, bound, data, scores):
    spread = data.draw(st.none() | spreads_for(scores.shape[1]))
    order = data.draw(st.permutations(range(len(scores))))
    whole = runoff.certify(scores, election=election, bound=bound, spread=spread)
    same(whole[np.array(order)], runoff.certify(scores[order], election=election, bound=bound, spread=spread))


@every
@given(data=st.data(), scores=ensembles())
def test_permuting_members_with_their_spread_changes_nothing(election, bound, data, scores):
    spread = data.draw(st.none() | spreads_for(scores.shape[1]))
    order = data.draw(st.permutations(range(scores.shape[1])))  # new member i is old member order[i]
    renamed = None if spread is None else [[order.index(j) for j in bucket] for bucket in spread]
    same(
        runoff.certify(scores, election=election, bound=bound, spread=spread),
        runoff.certify(scores[:, order], election=election, bound=bound, spread=renamed),
    )


@every
@given(data=st.data(), scores=ensembles())
def test_only_rankings_matter(election, bound, data, scores):
    spread = data.draw(st.none() | spreads_for(scores.shape[1]))
    rng = np.random.default_rng(0)
    scale = rng.uniform(0.5, 2, size=(*scores.shape[:2], 1))
    stretched = np.arctan(scores.astype(np.float64) / 1000 * scale) + scale
    settings = {"election": election, "bound": bound, "spread": spread}
    expected = runoff.certify(scores, **settings)
    same(expected, runoff.certify(stretched, **settings))
    ballots = runoff.rank(scores)
    assert ballots.dtype == np.uint8
    same(expected, runoff.certify(ballots, **settings))
    np.testing.assert_array_equal(ballots, runoff.rank(ballots))


@every
@given(data=st.data(), scores=ensembles(n_members=(2, 8), n_classes=(2, 4)))
def test_blocks_of_any_size_give_the_same(election, bound, data, scores):
    scores = np.concatenate([scores] * 5)
    cuts = sorted(data.draw(st.lists(st.integers(1, len(scores) - 1), unique=True, max_size=6)))
    expected = runoff.certify(scores, election=election, bound=bound)
    same(expected, runoff.certify(iter(np.split(scores, cuts)), election=election, bound=bound))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("runoff.scores.BLOCK_BYTES", data.draw(st.integers(1, 4000)))
        same(expected, runoff.certify(scores, election=election, bound=bound))


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_the_number_of_threads_changes_nothing(threads, monkeypatch):
    scores = np.random.default_rng(3).normal(size=(50, 24, 5))
    spread = spreads.cyclic(24, [0, 3, 10])
    expected = runoff.certify(scores, spread=spread)
    monkeypatch.setattr(numba.config, "NUMBA_NUM_THREADS", threads)
    same(expected, runoff.certify(scores, spread=spread))


@given(data=st.data(), scores=ensembles())
def test_a_spread_in_any_form_is_the_same_spread(data, scores):
    lists = data.draw(spreads_for(scores.shape[1]))
    matrix = np.zeros((len(lists), scores.shape[1]), bool)
    for b, bucket in enumerate(lists):
        matrix[b, bucket] = True
    expected = runoff.certify(scores, spread=lists)
    same(expected, runoff.certify(scores, spread=matrix))
    same(expected, runoff.certify(scores, spread=[bucket[::-1] for bucket in lists]))
    if len({len(bucket) for bucket in lists}) == 1:
        for dtype in (np.int64, np.uint16):
            same(expected, runoff.certify(scores, spread=np.array(lists, dtype).reshape(len(lists), -1)))
    same(expected, runoff.certify(scores, spread=expected.spread))


@given(scores=ensembles())
def test_cyclic_spreads_take_a_shortcut_to_the_same_place(scores):
    n = scores.shape[1]
    spread = spreads.Spread.from_any(spreads.cyclic(n, np.arange(0, n, 3)), n)
    assert len(spread.offsets) == len(range(0, n, 3))
    plain = spreads.Spread.from_any(spread, n)
    plain = spreads.Spread(n, n, plain.members_at, plain.members, plain.buckets_at, plain.buckets)
    object.__setattr__(plain, "offsets", np.empty(0, np.int32))
    for election, bound in BOUNDS:
        settings = {"election": election, "bound": bound}
        same(runoff.certify(scores, spread=spread, **settings), runoff.certify(scores, spread=plain, **settings))
