"""Rules that are compared in benchmarks.elections: their winners and bounds against all attacks on small elections."""

import itertools
import sys

import numpy as np
import pytest

import runoff
from benchmarks import elections

ORDERS = np.array(list(itertools.permutations(range(3))), np.uint8)


def all_profiles(n_members):
    return ORDERS[np.array(list(itertools.product(range(6), repeat=n_members)))]


@pytest.mark.parametrize(
    ("rule", "exact"),
    [
        (elections.approval, True),
        (elections.borda, True),
        (elections.borda_first, False),
        (elections.runoff_top, False),
    ],
)
@pytest.mark.parametrize("n_members", [2, 3, 4])
def test_no_attack_below_the_cost_changes_the_winner(rule, exact, n_members):
    profiles = all_profiles(n_members)  # every election of three classes
    winners, costs = rule(profiles)
    draws = np.random.default_rng(n_members)
    for i in draws.choice(len(profiles), 36, replace=False):
        distances = (profiles != profiles[i]).any(axis=2).sum(axis=1)
        true_cost = min(distances[winners != winners[i]], default=elections.NEVER)
        assert costs[i] <= true_cost
        if exact:
            assert costs[i] == true_cost


def literal(ballots):
    """Return the winners of one election under each rule, by definition."""
    n_classes = ballots.shape[1]

    def best(points):
        return int(np.argmax(points))

    def final(points, voters):
        a, b = sorted(sorted(range(n_classes), key=lambda c: (-int(points[c]), c))[:2])
        lead = sum(1 if ballot[a] > ballot[b] else -1 for ballot in ballots if voters(ballot, a, b))
        return a if lead >= 0 else b

    firsts = np.bincount(ballots.argmax(axis=1), minlength=n_classes)
    return [
        best((ballots >= n_classes - 2).sum(axis=0)),
        best(ballots.sum(axis=0)),
        final(ballots.sum(axis=0), lambda *_: True),
        final(firsts, lambda ballot, a, b: max(ballot[a], ballot[b]) >= n_classes - 2),
    ]


def test_winners_are_those_of_the_definitions_and_top_1_is_plurality():
    draws = np.random.default_rng(0)
    ballots = draws.permuted(np.tile(np.arange(5, dtype=np.uint8), (300, 7, 1)), axis=2)
    rules = (elections.approval, elections.borda, elections.borda_first, elections.runoff_top)
    given = np.stack([rule(ballots)[0] for rule in rules], axis=1)
    np.testing.assert_array_equal(given, [literal(each) for each in ballots])
    plurality = runoff.certify(ballots, election="plurality")
    np.testing.assert_array_equal(elections.runoff_top(ballots, 1)[0], plurality.prediction)
    everybody = elections.runoff_top(ballots, 5)
    np.testing.assert_array_equal(everybody[0], runoff.certify(ballots).prediction)
    assert (everybody[1] <= runoff.certify(ballots).radius + 1).all()


def test_idle_members_decide_where_plurality_and_runoff_differ():
    order = {"a": [3, 2, 1, 0], "b": [2, 3, 1, 0], "c": [1, 2, 3, 0]}  # points of classes 0 to 3
    ballots = np.array([[order["a"]] * 4 + [order["b"]] * 3 + [order["c"]] * 2], np.uint8)
    assert runoff.certify(ballots, election="plurality").prediction == [0]
    assert runoff.certify(ballots).prediction == [1]  # both idle members prefer 1
    (n, idle, for_truth), (other, *_) = elections.idle_preferences(ballots, np.array([0]))
    assert (n, round(idle), for_truth, other) == (1, 22, 0.0, 0)
    (n, *_), (other, idle, for_truth) = elections.idle_preferences(ballots, np.array([1]))
    assert (n, other, round(idle), for_truth) == (0, 1, 22, 100.0)
    seen = np.ones((9, 4), bool)
    seen[7] = False
    assert elections.by_knowledge(ballots, np.array([1]), seen) == [100.0, 100.0]


def test_the_commands_print_tables(tmp_path, monkeypatch, capsys):
    draws = np.random.default_rng(0)
    y = draws.integers(0, 5, 50)
    scores = draws.normal(size=(50, 9, 5)) + 2 * np.eye(5)[y][:, None]
    np.savez(tmp_path / "ballots.npz", b=runoff.rank(scores), y=y)
    monkeypatch.setattr(
        sys, "argv", ["elections", "rules", str(tmp_path / "ballots.npz"), "--budgets", "0", "2", "--failed", "2"]
    )
    elections.main()
    printed = capsys.readouterr().out
    expected = 100 * runoff.certified_accuracy(runoff.certify(scores), y, [0, 2])
    assert f"| runoff | {expected[0]:.2f} | {expected[1]:.2f} |" in printed
    assert "2 members failed, all in one order" in printed
    monkeypatch.setattr(sys, "argv", ["elections", "unequal", "--k", "5", "--ratios", "10", "--runs", "1"])
    elections.main()
    assert "most frequent class 10 times the rarest" in capsys.readouterr().out
