"""Input of `certify`: what is accepted, and the message for what is not."""

import mmap
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numba
import numpy as np
import pytest

import runoff
from runoff import ballots, scores, spreads
from runoff._io.files import open_array
from runoff.scores import _mapped
from test_relations import same

SCORES = np.random.default_rng(0).integers(0, 100, size=(30, 7, 4))


@pytest.mark.parametrize(
    "dtype",
    [*"BHIQbhilefdg", ">f4", ">i8", "<f2", ">u2"],
)
def test_scores_of_any_real_dtype(dtype):
    expected = runoff.certify(SCORES.astype(np.float64))
    same(expected, runoff.certify(SCORES.astype(dtype)))
    np.testing.assert_array_equal(runoff.rank(SCORES), runoff.rank(SCORES.astype(dtype)))


def test_bool_scores_are_scores():
    votes = SCORES > 50
    same(runoff.certify(votes.astype(float)), runoff.certify(votes))


@pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.longdouble])
def test_large_integers_are_not_rounded_into_ties(dtype):
    scores = np.array([[[2**60, 2**60 + 1], [2**60, 2**60 + 1], [2**60 + 1, 2**60]]], dtype=dtype)
    assert runoff.certify(scores).prediction[0] == 1
    assert runoff.rank(scores)[0].tolist() == [[0, 1], [0, 1], [1, 0]]


@pytest.mark.parametrize("tie", [(0.0, -0.0), (-0.0, 0.0)])
def test_zeros_of_either_sign_tie(tie):
    assert runoff.certify(np.array([[tie, tie]])).prediction[0] == 0
    assert runoff.rank(np.array([[tie]])).tolist() == [[[1, 0]]]


def test_layouts_and_containers(tmp_path):
    expected = runoff.certify(SCORES)
    same(expected, runoff.certify(SCORES.tolist()))
    same(expected, runoff.certify(np.asfortranarray(SCORES.astype(np.float32))))
    same(expected, runoff.certify(np.repeat(SCORES, 2, axis=1).astype(np.float32)[:, ::2]))
    np.save(tmp_path / "scores.npy", SCORES.astype(np.float32))
    for mode in ("r", "r+", "c"):
        mapped = np.load(tmp_path / "scores.npy", mmap_mode=mode)
        same(expected, runoff.certify(mapped))
        np.testing.assert_array_equal(mapped, SCORES)  # reading must not drop pages that hold the only copy
        if mode == "c":
            mapped[:] = 0
            runoff.certify(mapped)
            assert not mapped.any()
    assert _mapped(np.load(tmp_path / "scores.npy", mmap_mode="r")[5:]) is not None


def test_ballots_can_be_certified_from_a_file(tmp_path):
    shape = SCORES.shape
    out = np.lib.format.open_memmap(tmp_path / "ballots.npy", "w+", np.uint8, shape)
    runoff.rank(iter(np.array_split(SCORES, 4)), out=out)
    out.flush()
    ballots = np.load(tmp_path / "ballots.npy", mmap_mode="r")
    assert ballots.nbytes == SCORES.size
    same(runoff.certify(SCORES), runoff.certify(ballots))
    with pytest.raises(
        ValueError, match=re.escape("out must have the shape of the scores, (7, 4) after the first axis")
    ):
        runoff.rank(SCORES, out=np.empty((30, 7, 4), np.uint16))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("levels", [2, 1000])
def test_large_blocks_are_ranked_like_small_ones(dtype, levels):
    scores = np.random.default_rng(0).integers(0, levels, size=(700, 20, 7)).astype(dtype)
    np.testing.assert_array_equal(runoff.rank(scores), np.concatenate([runoff.rank(row[None]) for row in scores]))


@pytest.mark.parametrize("n_classes", [256, 257])
def test_many_classes(n_classes):
    scores = np.random.default_rng(1).normal(size=(2, 5, n_classes))
    ballots = runoff.rank(scores)
    assert ballots.dtype == (np.uint8 if n_classes == 256 else np.uint16)
    assert sorted(ballots[1, 3].tolist()) == list(range(n_classes))
    same(runoff.certify(scores), runoff.certify(ballots))


def changed(at, value):
    scores = SCORES.astype(float)
    scores[at] = value
    return scores


BAD_SCORES = {
    "scores must have 3 dimensions (n_samples, n_members, n_classes), got shape (30, 7)": SCORES[:, :, 0],
    "scores must have 3 dimensions (n_samples, n_members, n_classes), got shape ()": 3.0,
    "got shape (30, 7): if these are predicted classes, pass np.eye(n_classes)[predictions] with": SCORES.argmax(2),
    "scores must hold at least one input, got shape (0, 7, 4)": SCORES[:0],
    "scores must have at least one member, got shape (30, 0, 4)": SCORES[:, :0],
    "scores must have at least 2 classes, got shape (30, 7, 1)": SCORES[:, :, :1],
    "scores must be an array, got a path: read the file, as in np.load('a/scores.npy')": Path("a/scores.npy"),
    "scores must be an array, got a path: read the file, as in np.load('scores.npy')": "scores.npy",
    "scores must be real numbers, got dtype complex128": SCORES * 1j,
    "scores must be real numbers, got dtype <U2": SCORES.astype("U2"),
    "scores must be real numbers, got dtype object": SCORES.astype(object),
    "scores must be a plain array, got a masked one": np.ma.masked_less(SCORES, 5),
    "scores must be an array (n_samples, n_members, n_classes): ": [[[1, 2], [3]]],
    "scores must be finite, got nan for input 29, member 6, class 3: give every": changed((29, 6, 3), np.nan),
    "scores must be finite, got -inf for input 2, member 1, class 0": changed((2, 1, 0), -np.inf),
    "scores must be finite, got inf for input 2, member 1, class 0": changed((2, 1, 0), np.inf).astype(np.float16),
    "scores must be finite, got nan for input 20, member 0, class 0": changed((20, 0, 0), np.nan).astype("longdouble"),
    "scores must hold at least one input, got an iterator without blocks": iter([]),
    "block 1 of scores must have 7 members and 4 classes like the first, got shape (30, 6, 4)": iter(
        [SCORES, SCORES[:, 1:]]
    ),
    "block 0 of scores must have 3 dimensions (n_samples, n_members, n_classes), got shape (7, 4)": iter(SCORES),
}


@pytest.mark.parametrize("message", BAD_SCORES)
def test_bad_scores(message):
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        runoff.certify(BAD_SCORES[message])
    assert str(caught.value).count("\n") == 0


def test_predicted_classes_are_enough_for_plurality():
    rng = np.random.default_rng(0)
    scores = rng.normal(loc=(0, 1, 0, 0.5), size=(60, 9, 4))
    predictions = scores.argmax(axis=2)
    for spread in (None, [[0, 3], [1, 4], [2, 5], [6, 8], [7, 0]]):
        settings = {"election": "plurality", "spread": spread}
        same(runoff.certify(np.eye(4)[predictions], **settings), runoff.certify(scores, **settings))


def test_nan_is_found_in_any_block_and_by_rank(monkeypatch):
    monkeypatch.setattr("runoff.scores.BLOCK_BYTES", 300)
    message = "got nan for input 17, member 6, class 2"
    for dtype in (np.float32, np.longdouble):
        scores = changed((17, 6, 2), np.nan).astype(dtype)
        scores[23] = np.inf
        for call in (runoff.certify, runoff.rank, lambda x: runoff.certify(iter(np.split(x, [4, 9])), spread=[[0]])):
            with pytest.raises(ValueError, match=message):
                call(scores)


BAD_SPREADS = {
    "spread must name members 0 to 6, got 7 in bucket 1": [[0, 1], [7, 2]],
    "spread must name members 0 to 6, got -1 in bucket 0": np.array([[-1, 1]]),
    "spread must name a member at most once per bucket, got member 2 twice in bucket 1": [[0, 1, 3], [2, 5, 2]],
    "spread must be an integer array (n_buckets, d), got shape (7,)": np.arange(7),
    "spread must be an integer array (n_buckets, d), got shape ()": 3,
    "spread must be an integer array (n_buckets, d), got dtype float64": np.eye(7),
    "got bucket 0 of shape (1,) and dtype float64": [[0.5]],
    "got bucket 0 of shape (2, 1) and dtype int64": [[[0], [1]]],
    "got bucket 1 of shape (1, 0) and dtype float64": [[0], [[]]],
    "or a sequence of members per bucket, got [0, [1]]": [[0, [1]]],
    "or a sequence of members per bucket, got [[0], 1]": [[0], 1],
    "got bucket 0 of shape () and dtype object": [iter([0, 1])],
    "or a boolean array (n_buckets, n_members), got bucket 0 of shape (7,) and dtype bool": [[True] * 7],
    "spread must be an integer array (n_buckets, d) or a sequence of members per bucket, got [0, 1]": [0, 1],
    "spread must have at least one bucket (one row per bucket), got none": np.empty((0, 3), int),
    "must have at least one bucket (one row per bucket), got none": [],
    "a boolean spread must have one column for each of the 7 members, got shape (7, 6)": np.ones((7, 6), bool),
    "spread was made for 9 members, but the scores have 7: use the": spreads.Spread.from_any(
        spreads.cyclic(9, [0, 1]), 9
    ),
}


@pytest.mark.parametrize("message", BAD_SPREADS)
def test_bad_spreads(message):
    with pytest.raises(ValueError, match=re.escape(message)):
        runoff.certify(SCORES, spread=BAD_SPREADS[message])


def test_bad_settings():
    with pytest.raises(ValueError, match="election must be one of 'maximin', 'plurality', 'runoff', got 'borda'"):
        runoff.certify(SCORES, election="borda")
    with pytest.raises(ValueError, match="bound must be one of 'tight', 'paper', got 'loose'"):
        runoff.certify(SCORES, bound="loose")


def test_no_member_is_reached():
    for spread in (np.empty((3, 0), int), [[], [], []], np.zeros((3, 7), bool)):
        for bound in ("paper", "tight"):
            certificates = runoff.certify(SCORES, spread=spread, bound=bound)
            assert (certificates.radius == 3).all()
            assert certificates.attack(0) is None
            assert "No attack of any size can" in certificates.explain(0)


@pytest.mark.parametrize("dtype", [np.dtype(("<f4", (2,))), np.dtype([("a", "<f4"), ("b", "<f4")])])
def test_files_of_records_are_refused(tmp_path, dtype):
    import struct

    kind = dtype.descr if dtype.names else "(2,)<f4"
    header = f"{{'descr': {kind!r}, 'fortran_order': False, 'shape': (4, 5, 3), }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(480))
    with pytest.raises(ValueError, match=r"must hold numbers, got records|must be a .npy file"):
        open_array(tmp_path / "x.npy")


def test_the_smallest_type_that_holds_a_ballot():
    kinds = {2: "u1", 256: "u1", 257: "u2", 65536: "u2", 65537: "u4"}
    assert {n: ballots.points_dtype(n).str[1:] for n in kinds} == kinds


@pytest.mark.parametrize(
    ("dtype", "read_as"),
    [
        *[
            ("?", "u1"),
            ("u1", "u1"),
            ("u2", "u2"),
            ("i1", "f4"),
            ("i2", "f4"),
            ("u4", "f8"),
            ("i4", "f8"),
            ("f2", "f4"),
        ],
        *[("f4", "f4"), ("f8", "f8"), (">f4", "f4"), (">u2", "u2"), ("i8", "u1"), ("u8", "u1"), ("g", "u1")],
    ],
)
def test_what_kernels_are_given_of_each_type(dtype, read_as):
    """Scores are converted if that is exact, and ranked otherwise."""
    given = ballots.readable(SCORES.astype(dtype))
    assert given.dtype == np.dtype(read_as)
    assert given.flags.c_contiguous
    assert not given.flags.writeable  # so that no kernel is compiled twice
    if np.dtype(dtype).newbyteorder("=").name in ballots.READ_AS:
        np.testing.assert_array_equal(given, SCORES.astype(dtype))
    np.testing.assert_array_equal(runoff.rank(given), runoff.rank(SCORES.astype(dtype)))


def test_scores_that_are_not_finite_are_named_by_their_input():
    block = np.zeros((2, 3, 4), np.longdouble)
    block[1, 2, 3] = np.inf
    for more, name in (((), "input 1, member 2, class 3"), ((5,), "input 6, member 2, class 3")):
        with pytest.raises(ValueError, match=f"scores must be finite, got inf for {name}"):
            ballots.readable(block, *more)


def test_scores_of_an_ensemble_are_an_array_and_can_be_cut():
    values, spread = np.arange(24.0).reshape(4, 3, 2), np.array([[0], [1], [2]])
    given = scores.Scores(values, spread, "a fingerprint", classes_fixed=False)
    assert len(given) == 4
    assert np.asarray(given) is values
    copied = np.array(given, copy=True)
    np.testing.assert_array_equal(copied, values)
    assert not np.shares_memory(copied, values)
    assert np.asarray(given, dtype=np.float32).dtype == np.float32
    for inputs, rows in ((2, [2]), (slice(1, 3), [1, 2]), ([3, 0], [3, 0])):
        some = given[inputs]
        np.testing.assert_array_equal(some.values, values[rows])
        assert (some.spread is spread, some.fingerprint, some.classes_fixed) == (True, "a fingerprint", False)
    for members in ((slice(None), [0, 2]), (slice(0, 3, 2), slice(0, 2)), (1, 0), values > 3):
        with pytest.raises(
            ValueError, match=r"^scores of a classifier are selected by input only, as in scores\[:10\]"
        ):
            given[members]


def test_blocks_of_an_ensembles_scores_keep_its_spread_and_unit():
    """Without the spread, a bucket that reaches two members would count as one member."""
    values = np.zeros((4, 6, 2))
    values[..., 0] = 1
    given = scores.Scores(values, spreads.cyclic(6, [0, 1]), "a fingerprint", unit="sources")
    whole, blocks = runoff.certify(given), runoff.certify(iter([given[:1], given[1:]]))
    np.testing.assert_array_equal(blocks.radius, whole.radius)
    assert whole.radius[0] < runoff.certify(values).radius[0]
    assert (blocks.unit, blocks.fingerprint, blocks.n_buckets) == ("sources", "a fingerprint", 6)
    with pytest.raises(ValueError, match="spread must be the one"):
        runoff.certify(iter([given]), spread=spreads.cyclic(6, [0]))
    with pytest.raises(ValueError, match=r"unit must be that of these scores' members, 'sources'"):
        runoff.certify(iter([given]), unit="samples")
    for second in (values, replace(given, fingerprint="another"), replace(given, classes_fixed=False)):
        for pair in ((given, second), (second, given)):
            with pytest.raises(ValueError, match=r"must all be those of one classifier|fixed in advance"):
                runoff.certify(iter(pair))
    with pytest.raises(ValueError, match="fixed in advance"):
        runoff.certify(iter([replace(given, classes_fixed=False)]))


@pytest.mark.parametrize(
    ("dtype", "limit", "sizes"),
    [("u1", 120, [5, 5, 1]), ("f8", 120, [2, 2, 2, 2, 2, 1]), ("f8", 1, [1] * 11), ("u1", 10**6, [11])],
)
def test_blocks_are_as_large_as_their_scores_may_get(monkeypatch, dtype, limit, sizes):
    """At least 4 bytes for each of 6 scores, and at least one input; the pages of a file are dropped block by block."""

    class Pages(list):
        madvise = list.append

    dropped = Pages()
    monkeypatch.setattr(scores, "BLOCK_BYTES", limit)
    monkeypatch.setattr(scores, "_mapped", lambda _: dropped)
    given = np.arange(66).astype(dtype).reshape(11, 2, 3)
    cut = list(scores.blocks_of(given))
    assert [len(block) for block in cut] == sizes
    assert dropped == [mmap.MADV_DONTNEED] * len(sizes)
    np.testing.assert_array_equal(np.concatenate(cut), given)


def test_ballots_are_written_to_the_given_array():
    longer = np.full((40, 7, 4), 9, np.uint8)
    assert runoff.rank(SCORES, out=longer) is longer
    np.testing.assert_array_equal(longer[:30], runoff.rank(SCORES))
    assert (longer[30:] == 9).all()
    for out in (longer[:29], np.empty((30, 7, 5), np.uint8), np.empty((30, 6, 4), np.uint8)):
        with pytest.raises(ValueError, match="out must have the shape of the scores"):
            runoff.rank(SCORES, out=out)


def test_a_preferred_class_goes_to_the_top_and_another_to_the_bottom():
    given = np.array([[3, 2, 1, 0], [0, 1, 2, 3], [2, 3, 0, 1]], np.uint8)
    moved = ballots.prefer(given, np.array([3, 2, 1]), last=0)
    assert moved.tolist() == [[0, 2, 1, 3], [0, 1, 3, 2], [0, 3, 1, 2]]
    assert moved.dtype == np.uint8


def test_a_spread_in_both_directions_by_hand():
    spread = spreads.Spread.from_any([[2, 0], [], [3, 2, 0]], 5)
    assert (spread.n_buckets, spread.n_members, spread.largest, spread.n_unreached) == (3, 5, 3, 2)
    assert spread.members_at.tolist() == [0, 2, 2, 5]
    assert spread.members.tolist() == [0, 2, 0, 2, 3]
    assert spread.buckets_at.tolist() == [0, 2, 2, 4, 5, 5]
    assert spread.buckets.tolist() == [0, 2, 0, 2, 2]
    assert spread.reached([0, 1]).tolist() == [0, 2]
    assert spread.reached([2, 0]).tolist() == [0, 2, 3]
    assert spread.reached([]).tolist() == []
    assert spread.one_to_one is None
    assert spread.offsets.tolist() == []
    assert all(getattr(spread.reach, name) is getattr(spread, name) for name in ("members_at", "members", "buckets"))
    assert spreads.Spread.from_any([[1], [2], [0]], 3).one_to_one.tolist() == [2, 0, 1]
    for lists in ([[0], [1]], [[0], [0], [1]], [[0, 1], [2], [0]], [[0], [1], []], [[0], [1], [2], [0]]):
        assert spreads.Spread.from_any(lists, 3).one_to_one is None
    assert spreads.Spread.from_any(spreads.cyclic(5, [1, 4]), 5).offsets.tolist() == [1, 4]
    assert spreads.Spread.from_any([[0, 1], [1, 2], [2, 0]], 3).offsets.tolist() == [0, 1]
    for lists in (
        [[0, 1], [1, 2], [0, 1]],
        [[0, 1], [1, 2]],
        [[0, 1], [1, 2], [2]],
        [[], [], []],
        [[0, 1], [2], [2, 0, 1]],
    ):
        assert spreads.Spread.from_any(lists, 3).offsets.tolist() == []
    assert spreads.disjoint(3).members.tolist() == [0, 1, 2]


def test_some_inputs_are_read_in_blocks(monkeypatch):
    array, rows = np.arange(60.0).reshape(10, 3, 2), np.array([7, 7, 0, 9, 2, 5, 1])
    monkeypatch.setattr("runoff.scores.BLOCK_BYTES", 3 * array[0].nbytes)
    blocks = list(scores.selected(array, rows))
    assert [len(block) for block in blocks] == [3, 3, 1]
    np.testing.assert_array_equal(np.concatenate(blocks), array[rows])


def test_the_first_input_that_is_not_finite_is_named(monkeypatch):
    monkeypatch.setattr(numba.config, "NUMBA_NUM_THREADS", 4)
    values = np.random.default_rng(0).normal(size=(64, 5, 3))
    values[[9, 30, 50], 1, 2] = np.nan
    with pytest.raises(ValueError, match="got nan for input 9, member 1, class 2"):
        runoff.certify(values)


def test_there_are_as_many_threads_as_numba_has():
    assert scores.n_threads() == numba.config.NUMBA_NUM_THREADS


@pytest.mark.parametrize("threads", [1, 3])
def test_a_block_is_divided_among_threads_without_gaps(monkeypatch, threads):
    monkeypatch.setattr(numba.config, "NUMBA_NUM_THREADS", threads)
    block, parts = np.zeros((50, 2, 3)), []

    def part(a, b):
        parts.append((int(a), int(b)))
        return 2 if a <= 20 < b or a <= 40 < b else -1

    with ThreadPoolExecutor(2) as pool:
        scores.in_parts(pool, part, block, 100)  # these scores are finite, whatever the parts say
        starts, ends = zip(*sorted(parts), strict=True)
        assert (starts, ends[-1], len(parts)) == ((0, *ends[:-1]), 50, 4 * threads)
        block[22, 1, 2], block[45, 0, 0] = np.nan, np.inf
        part = lambda a, b: next((i - int(a) for i in (22, 45) if a <= i < b), -1)  # noqa: E731
        with pytest.raises(ValueError, match="got nan for input 122, member 1, class 2"):
            scores.in_parts(pool, part, block, 100)
        parts = []
        scores.in_parts(pool, lambda a, b: parts.append((int(a), int(b))) or -1, block[:3], 0)
        assert sorted(parts) == [(0, 1), (1, 2), (2, 3)]  # none is empty


class Lazily:
    """Scores that note what is read."""

    def __init__(self, values):
        self.values, self.read = values, []

    def __len__(self):
        return len(self.values)

    def __getitem__(self, inputs):
        self.read.append((inputs.start or 0, inputs.stop))
        return self.values[inputs]


def test_members_that_rank_the_classes_in_the_same_way_for_every_input_are_counted():
    values = np.random.default_rng(0).normal(size=(200, 9, 4))
    constant = [1, 4, 7]
    values[:, constant] = values[0, constant] * np.random.default_rng(1).uniform(1, 2, (200, 3, 1))
    assert ballots.constant_members(values) == ballots.constant_members(values.tolist()) == 3
    for changed, left in ((199, 2), (64, 1), (63, 0)):  # the last input, and those at the edge of what is read at once
        values[changed, constant[left]] *= -1
        given = Lazily(values)
        assert ballots.constant_members(given) == left
        assert given.read == [(0, 1), (0, 64), (64, 128), (128, 192), (192, 256)]
    given = Lazily(values[:, :1])
    assert ballots.constant_members(given) == 0
    assert given.read == [(0, 1), (0, 64)]
    assert ballots.constant_members(values[:20, constant]) == 3
    assert ballots.constant_members(values[:19, constant]) is None


def test_only_two_dimensions_of_integers_may_be_predicted_classes():
    hint = (
        ": if these are predicted classes, pass np.eye(n_classes)[predictions] with election='plurality', "
        "which needs first choices only"
    )
    for given, expected in (
        (SCORES[0], hint),
        (SCORES[0].astype(np.uint8), hint),
        (SCORES[0] > 50, ""),
        (SCORES[0] * 1.0, ""),
        (SCORES[0, 0], ""),
        (SCORES[None], ""),
    ):
        with pytest.raises(ValueError, match="must have 3 dimensions") as caught:
            scores.checked_scores(given)
        assert str(caught.value).endswith(f"got shape {given.shape}{expected}")


def test_the_columns_of_a_table_as_a_spread_are_members_by_position():
    pandas = pytest.importorskip("pandas")
    matrix = np.array([[1, 0, 1], [0, 1, 0]], bool)
    spread = spreads.Spread.from_any(pandas.DataFrame(matrix), 3)
    assert (spread.members_at.tolist(), spread.members.tolist()) == ([0, 2, 3], [0, 2, 1])
    for names in ([0, 2, 1], ["0", "1", "2"], [1, 2, 3]):
        message = (
            f"takes members by position, and the columns of this table must be named 0, 1, ..., got {names}: order"
        )
        with pytest.raises(ValueError, match=re.escape(message)):
            spreads.Spread.from_any(pandas.DataFrame(matrix, columns=names), 3)
