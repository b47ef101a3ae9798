"""How much work the kernels do, pinned: what they leave out saves time and changes no result, so no other test sees it.

Kernels run as Python here, and each call of the expensive functions is noted, with what it was given and what it
returned. If you change the order of the work, or what is left out, on purpose: compare the numbers of calls and nodes,
which the test prints, and replace the digests.
"""

import hashlib
import itertools
import types
from importlib import import_module

import numpy as np
import pytest

from runoff import spreads

MODULES = ("counting", "covering", "runoff", "plurality", "runoff_spread", "maximin", "targets", "targets_spread")
EXPENSIVE = ("needed", "search", "largest_sums", "_count_duels", "_suffice")
ELECTIONS = {"plurality": 160, "runoff_spread": 1600, "maximin": 800, "targets_spread": 96}
ELECTIONS |= {"runoff": 1600, "targets": 1600}  # small ones, with one bucket per member
INPUTS, PARTS = 2, 16  # of an election, and the number of tests of each kernel
PINNED = {
    "plurality": (
        "b5bcb10f baca11e6 484cf604 3df47721 bcdc2e7a f933343e 8c534caf 53de5a9c 50dba1ba e1186c07 8840351d "
        "00edfeec f2d3074f 22347080 a0d801b8 a2d87ad6"
    ),
    "runoff_spread": (
        "b38d4897 4166d63f f57bea49 179c554b 4a915b7a d92d3acf 2d115c8a 0dd73259 70e7b04c 1a6a647f 923689f1 "
        "2388d690 f5426d03 8a04b0c5 6e4a84f6 6cf6fffb"
    ),
    "maximin": (
        "6df8e0cb 090f231c 487fa26c 4d43eebb b9a5d5b1 ae7332c5 39852cd6 c7f11cd8 ee2dbc8a 04ed95d8 1f290c70 "
        "83be1516 cf512f9f 110ad92d e95c5dc9 5b6e9682"
    ),
    "runoff": (
        "83ab7a71 aef38e35 fad62aff 153acfdb ae201e54 cb67e3bc 56485cc4 f50e628c a8c6f90f c002feb7 926927ea "
        "3c274b97 55712ae5 2a07972c 39ff644d 86b0f0a3"
    ),
    "targets": (
        "8d3b400a 756300e1 f127c974 2ad4e728 6c9c7dbd 127e1cf5 deb272c2 11b87921 42c1d4e3 b73da751 37a1f3b0 "
        "163518fc 2858c131 093b14fa fc3fc53f c9b2d52e"
    ),
    "targets_spread": (
        "6ecfc694 017c6609 e85300e2 603c3d79 953c296f e8d79c37 7a983ef3 00b9d878 4d42ff18 25f0cb19 d9dfa1c3 "
        "f73a0286 53daa6af 339aa69b 3babaf07 11bd41ec"
    ),
}


def as_python(note):
    """The functions of all kernels uncompiled, by module; calls of the expensive ones are noted."""
    modules = {f"runoff._kernels.{name}": import_module(f"runoff._kernels.{name}") for name in MODULES}
    spaces = {name: dict(vars(module)) for name, module in modules.items()}
    made = {}
    for space in spaces.values():
        for name, value in space.items():
            function = getattr(value, "py_func", value)
            home = getattr(function, "__module__", None)
            if isinstance(function, types.FunctionType) and home in spaces:
                if function not in made:
                    copy = types.FunctionType(function.__code__, spaces[home], name, function.__defaults__)
                    made[function] = noting(copy, note) if name in EXPENSIVE else copy
                space[name] = made[function]
    return spaces


def noting(function, note):
    """The function, with its calls noted."""

    def called(*arguments):
        before = [np.array(a) for a in arguments if isinstance(a, (int, np.integer, np.ndarray))]
        result = function(*arguments)
        filled = [np.array(a) for a in arguments if isinstance(a, np.ndarray)]
        note(function.__name__, result, before, filled)
        return result

    return called


def election_of(number):
    """Scores with many or few classes, most of them without votes or none, and a spread of one of four kinds."""
    rng = np.random.default_rng([7, number])
    large = number % 5 > 2
    m = int(rng.integers(16, 29) if large else rng.integers(6, 15))
    c = int(rng.integers(6, 11) if large else rng.integers(2 + number % 3, 9))
    popularity = rng.choice([0.0, 0.5, 1.0, 2.5]) * rng.normal(size=c)
    scores = rng.normal(size=(INPUTS, m, c)) + popularity
    if number % 2:
        scores = np.round(scores)
    d = int(rng.integers(2, 6) if large else rng.integers(1, 4))
    if number % 4 == 0:
        return scores, spreads.cyclic(m, rng.permutation(m)[:d])
    if number % 4 == 1:
        return scores, spreads.cyclic(m, [0])
    members = m if number % 4 == 2 else m - int(rng.integers(1, m // 2))  # or some that no bucket reaches
    sizes = rng.integers(number % 2, d + 2, int(rng.integers(m // 2, m + 3)))
    return scores, [rng.choice(members, min(size, members), replace=False).tolist() for size in sizes]


def small(space, numbers):
    """The results of kernels for one bucket per member on small elections, in which every vote matters, as a digest."""
    digest = hashlib.sha256()
    for number in numbers:
        rng = np.random.default_rng([8, number])
        m, c = int(rng.integers(1, 9)), int(rng.integers(2, 6))
        scores = rng.integers(0, 4, (INPUTS, m, c)) + rng.integers(0, 3, c)
        out = np.zeros((3, INPUTS), np.int64)
        for last in range(c) if "disjoint" not in space else (False, True):
            for name in ("disjoint",) if "disjoint" in space else ("plurality", "runoff"):
                space[name](scores, last, *(out if name == "disjoint" else out[:2]))
                digest.update(out.astype("<i8").tobytes())
    return digest.hexdigest()[:8]


def work(kernel, numbers):
    """The calls that a kernel makes on some elections, as a digest, and how many there are."""
    digest, calls = hashlib.sha256(), {}

    def note(name, result, before, filled):
        values = [np.asarray(result if result is not None else 0).ravel(), *(a.ravel() for a in [*before, *filled])]
        digest.update(name.encode() + np.concatenate(values).astype("<f8").tobytes())
        calls[name] = calls.get(name, 0) + 1
        if name == "search":
            calls["nodes"] = calls.get("nodes", 0) + int(result[1])

    space = as_python(note)[f"runoff._kernels.{kernel}"]
    if "spread" not in space:
        return small(space, numbers), calls
    for number in numbers:
        scores, spread = election_of(number)
        n, n_members, n_classes = scores.shape
        reach = spreads.Spread.from_any(spread, n_members).reach
        out = np.zeros((3, n), np.int64)
        ways = {
            "maximin": [()],
            "targets_spread": [(rounds, target) for rounds in (False, True) for target in range(min(3, n_classes))],
        }.get(kernel, [(False,), (True,)])
        for budget in (2, 120):
            for way in ways:
                space["spread"](scores, *way, reach, budget, *(out[:2] if kernel == "targets_spread" else out))
                digest.update(out.astype("<i8").tobytes())
    return digest.hexdigest()[:8], calls


@pytest.mark.parametrize("kernel", PINNED)
@pytest.mark.parametrize("part", range(PARTS))
def test_kernels_do_as_much_work_as_they_did(kernel, part):
    digest, calls = work(kernel, range(part, ELECTIONS[kernel], PARTS))
    print(kernel, part, calls)
    assert digest == PINNED[kernel].split()[part]


@pytest.mark.parametrize("part", range(4))
def test_a_class_cannot_pass_another_that_stays_ahead_whatever_reachable_members_vote(part):
    space = as_python(lambda *_: None)["runoff._kernels.runoff_spread"]
    found = []
    for number in range(part, 400, 4):
        rng = np.random.default_rng([9, number])
        m, c = int(rng.integers(3, 12)), int(rng.integers(3, 6))
        members = rng.permutation(m)[: int(rng.integers(1, m // 2 + 2))]
        reach = spreads.Spread.from_any([[int(j)] for j in members], m).reach
        first = rng.integers(0, c, m).astype(np.int32)
        votes = np.bincount(first, minlength=c).astype(np.int32)
        w, target = (int(v) for v in rng.permutation(c)[:2])
        after = first.copy()
        after[members] = target  # the most that can be done for it
        counts = np.bincount(after, minlength=c)
        ahead = [(-counts[u], u) < (-counts[target], target) for u in range(c) if u not in (w, target)]
        assert space["_cannot_pass"](first, votes, w, target, reach) is any(ahead)
        found.append(any(ahead))
    assert 10 < sum(found) < 90


@pytest.mark.parametrize("part", range(4))
def test_the_cheapest_pair_is_that_of_all_pairs(part):
    """Theorem 3.4's Cert^R1, every pair bounded on its own."""
    space = as_python(lambda *_: None)["runoff._kernels.runoff_spread"]
    needed, of_one, of_two = (space[name] for name in ("needed", "pass_power", "pair_power"))
    for number in range(part, 160, 4):
        rng = np.random.default_rng([10, number])
        m, c, d = int(rng.integers(8, 30)), int(rng.integers(4, 9)), int(rng.integers(1, 4))
        reach = spreads.Spread.from_any(spreads.cyclic(m, rng.permutation(m)[:d]), m).reach
        first = rng.choice(c, m, p=rng.dirichlet(np.full(c, 2.0))).astype(np.int32)
        votes = np.bincount(first, minlength=c).astype(np.int32)
        w = int(np.argsort(-votes, kind="stable")[number % 2])  # one of the two finalists
        power, sums, tally = np.zeros(m, np.int32), np.zeros(m, np.int32), np.zeros(3 * d + 1, np.int32)

        def least(fill, gap, *classes, first=first, w=w, reach=reach, power=power, sums=sums, tally=tally):
            fill(first, w, *classes, power)
            return needed(power, gap, 2**30, reach, sums, tally)

        gaps = {u: space["gap"](votes, w, u) for u in range(c) if u != w}
        alone = {u: least(of_one, gap, u) for u, gap in gaps.items()}
        costs = [max(alone[u], alone[v], least(of_two, gaps[u] + gaps[v], u, v)) for u in gaps for v in gaps if u < v]
        for limit in (2**30, int(rng.integers(1, m))):
            found = space["_eliminated_spread"](
                first, votes, w, limit, reach, power, np.zeros(c, np.int32), sums, tally
            )
            assert found == min([limit, *costs])


@pytest.mark.parametrize("part", range(4))
def test_the_fewest_members_with_which_a_class_passes_all_and_wins_are_those_of_all_sets(part):
    """Every set of members that rank c first and w last."""
    space = as_python(lambda *_: None)["runoff._kernels.runoff"]
    for number in range(part, 160, 4):
        rng = np.random.default_rng([11, number])
        m, n_classes = int(rng.integers(3, 8)), int(rng.integers(3, 5))
        row = rng.permuted(np.tile(np.arange(n_classes), (m, 1)), axis=1)
        first, votes, above = np.zeros(m, np.int32), np.zeros(n_classes, np.int32), np.zeros(n_classes, np.int32)
        space["first_choices"](row, first, votes)
        w, _ = space["finalists"](row, votes, above)
        c = int(rng.choice([u for u in range(n_classes) if u != w]))

        def succeeds(taken, row=row, w=w, c=c, n_classes=n_classes, m=m):
            after = row.copy()
            after[taken] = np.where(np.arange(n_classes) == c, n_classes, np.where(np.arange(n_classes) == w, -1, 0))
            counts = np.bincount(after.argmax(axis=1), minlength=n_classes)
            passes = all((-counts[c], c) < (-counts[u], u) for u in range(n_classes) if u not in (c, w))
            return passes and (-np.count_nonzero(after[:, c] > after[:, w]) * 2, c) < (-m, w)

        sets = (list(taken) for size in range(m + 1) for taken in itertools.combinations(range(m), size))
        least = next(len(taken) for taken in sets if succeeds(taken))
        voters = np.zeros(n_classes, np.int32)
        for start, limit in ((0, m + 1), (least, least + 1), (least, least)):
            assert space["beaten_cost"](row, first, votes, above, w, c, start, limit, voters) == least
