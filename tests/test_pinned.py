"""Results of the compiled kernels, pinned: every number below was right by the other tests when it was written.

A certificate that depends on how far search gets must be the same on every machine and in every version. If you change
the order of the search on purpose, check that no radius gets worse, and replace the digests by what the test prints.
"""

import hashlib

import numpy as np
import pytest

import runoff
from reference import RULES
from runoff import elections, spreads
from tests.torture.oracle import NEVER, truth

PINNED = {
    ("certified", "maximin"): (
        "9386a1a8 3e67b126 0042d256 c473118a 91caa668 16be6441 05c5ef26 842ce2e2 748df0ca b9b19697 "
        "8811db3b 31d49325 95085a57 fa23578b c47a7b85 33ac11e3 b5edd562 6ad93704 e80bc506 e343bbf6 "
        "e9926ec4 d49ed790 0e43aadc e559b743"
    ),
    ("certified", "plurality"): (
        "4a0910c1 fa7f0835 d03909ed d1357a08 3703d877 3df453d3 d61498e6 222affb9 0b67a357 9594f595 "
        "1ba8674c be1f99bd ee729914 c9e0383d 59022b71 5b8ce625 8e6139dd 00a1e368 08e87b93 d948c960 "
        "7ce4da21 dcca9822 2e89ff08 b72fca60"
    ),
    ("certified", "runoff"): (
        "91f2b73e 13daf843 348dcf86 056356f4 46964ebf 1c315d66 12b2bc99 d9ec0a7b b47359f2 9594f595 "
        "82d56bca 8b6ef6f3 456f4e95 e936a455 1a5877fd 780eb2cf d7071b53 2e938723 38f8cb79 9e48a192 "
        "859302c3 dcca9822 3d78ad53 46910706"
    ),
    ("targets", "maximin"): (
        "833c7609 a1a045fc bf403539 47c61e7a bc2aefa4 580b85e2 f0c43fcb 8c135fa1 9af85734 126f3c25 296ca908 3770dad9"
    ),
    ("targets", "plurality"): (
        "d1ca1fd9 8f2cd06f 8581984e 0c13d69f d34e7fc0 80ace6bc 1f4d2b3e cf38fb53 883bd7e6 7266370c 70b09fae 14032939"
    ),
    ("targets", "runoff"): (
        "aa21780e 44a176a6 ebdc038e 32ba65b5 2a1ade28 fdefdc71 7c03f5ac b4689cc1 b1480d1e abe5be2d d52f17f9 2f619c4a"
    ),
    ("attacks", "maximin"): "191e3ee8 0b775497 fa4a8487 55e56457 225a7528 260cbb77",
    ("attacks", "plurality"): "4a88cdb5 048e7bb5 10b78da7 24acec10 c4e1f72e 5d842a60",
    ("attacks", "runoff"): "f9a9c9a7 aa877533 8f399f3c 3cbbde6b 66854ccd 8b80f9b6",
}


def election_of(number):
    """Scores of some inputs: classes with many votes, few or none, ties, and a spread of one of four kinds."""
    rng = np.random.default_rng(number)
    m, c = int(rng.integers(7, 15)), int(rng.integers(3, 8))
    agreement = rng.choice([0.2, 0.6, 1.2], size=(5, 1, 1))
    scores = np.round(rng.normal(size=(5, m, c)) + agreement * rng.normal(size=(5, 1, c)), int(rng.integers(0, 2)))
    d = int(rng.integers(2, 5))
    if number % 4 == 0:
        return scores, spreads.cyclic(m, rng.permutation(m)[:d])
    members = m if number % 4 < 3 else m - 2  # or two members that no bucket reaches
    sizes = rng.integers(0 if number % 2 else 1, d + 1, int(rng.integers(m // 2, m + 1)))
    return scores, [rng.choice(members, size, replace=False).tolist() for size in sizes]


def certified(rule, scores, spread):
    """What the kernels say, in every way that they can be called."""
    reach, out, found = spreads.Spread.from_any(spread, scores.shape[1]).reach, np.zeros((3, len(scores)), np.int64), []
    for tight in (False, True) if rule.in_paper else (True,):
        rule.certify_disjoint(scores, tight, *out)
        found.append(out.copy())
        for budget in (1, 4, 9, 25, 400) if tight else (0,):
            rule.certify_spread(scores, tight, reach, budget, *out)
            found.append(out.copy())
    return found


def targets(rule, scores, spread):
    """What each class needs to win."""
    reach, found = spreads.Spread.from_any(spread, scores.shape[1]).reach, []
    for target in range(scores.shape[2]):
        out = np.zeros((2, len(scores)), np.int64)
        rule.target_disjoint(scores, target, *out)
        found.append(out.copy())
        for budget in (1, 6, 60):
            rule.target_spread(scores, target, reach, budget, *out)
            found.append(out.copy())
    return found


def attacks(rule, scores, spread):
    """The attacks found, with any aim and with each class as the aim."""
    found = []
    for where in (None, spread):
        certificates = runoff.certify(scores[:2], election=rule, spread=where)
        for i in range(2):
            for to in (None, *range(scores.shape[2])):
                attack = None if certificates.prediction[i] == to else certificates.attack(i, to=to)
                if attack is not None:
                    found += [attack.buckets, attack.members, attack.ballots, np.array([attack.prediction])]
    return found


CASES = {"certified": (certified, 24), "targets": (targets, 12), "attacks": (attacks, 6)}


@pytest.mark.parametrize("election", sorted(RULES))
@pytest.mark.parametrize(("what", "number"), [(what, n) for what, (_, many) in CASES.items() for n in range(many)])
def test_results_are_what_they_were(what, number, election):
    found = CASES[what][0](elections.get(election), *election_of(number))
    text = np.concatenate([np.asarray(a, np.int64).ravel() for a in found]).astype("<i8").tobytes()
    digest = hashlib.sha256(text).hexdigest()[:8]
    assert digest == PINNED[what, election].split()[number]


@pytest.mark.parametrize("number", range(24))
def test_pinned_results_are_sound(number):
    scores, spread = election_of(number)
    spread = np.asarray(spread).tolist() if isinstance(spread, np.ndarray) else spread
    for election in RULES:
        for where in (None, spread):
            prediction, runner_up, cost = truth(scores, election, where)
            buckets = scores.shape[1] if where is None else len(where)
            certificates = runoff.certify(scores, election=election, spread=where)
            np.testing.assert_array_equal(certificates.prediction, prediction)
            np.testing.assert_array_equal(certificates.runner_up, runner_up)
            most = np.where(cost == NEVER, buckets, cost - 1)
            assert (certificates.radius == most if where is None else certificates.radius <= most).all()
