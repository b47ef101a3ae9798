"""The campaign of tests/torture, as a smoke test: every part runs, and nothing fails."""

import json
import os

import numpy as np
import pytest

from reference import RULES, ballots_of, true_cost
from test_adversary import agrees_with_every_ballot
from tests.torture import __main__ as campaign
from tests.torture import damage, elections, guard, heavy, readers, refits, table, targets, units
from tests.torture.guard import guarded, sentence
from tests.torture.oracle import NEVER
from tests.torture.tally import Tally


def failures(tally):
    return [example for line in tally.lines.values() for example in line.examples]


@pytest.mark.parametrize("name", [name for name in readers.READERS if name not in ("scores .npy", "folders of images")])
def test_a_few_damaged_files(name):
    tally = readers.damaged(name, 1, 10, 1)
    assert tally.lines[name].tried == 10
    assert not failures(tally)


def test_every_reader_belongs_to_one_piece_of_the_campaign(tmp_path, monkeypatch, capsys):
    assert campaign.PIECES["readers"] == tuple(f"readers-{group}" for group in readers.GROUPS)
    assert sum(map(len, readers.GROUPS.values())) == len(readers.READERS)
    tried = []
    monkeypatch.setattr(readers, "damaged", lambda name, *_: tried.append(name) or Tally())
    monkeypatch.setattr(readers.heavy, "run", lambda _, names: tried.append(names) or Tally())
    page = tmp_path / "page.md"
    page.write_text(
        "".join(f"<!-- {piece} -->\nold\n<!-- end of {piece} -->\n" for piece in campaign.PIECES["readers"])
    )
    monkeypatch.setattr("sys.argv", ["torture", "--part", "readers-evidence", "--write", str(page)])
    assert campaign.main() == 1  # nothing was tried
    assert tried == ["proofs", "attestations", ["proofs", "attestations"]]
    assert page.read_text().count("\nold\n") == len(readers.GROUPS) - 1
    tried.clear()
    monkeypatch.setattr("sys.argv", ["torture", "--part", "readers"])
    campaign.main()
    assert [name for name in tried if isinstance(name, str)] == [*readers.READERS]
    capsys.readouterr()


@pytest.mark.parametrize("name", ["carried scores", "datasets .npz", "GTSRB", "MNIST", "run files"])
def test_every_hostile_file_can_be_made(name, tmp_path, monkeypatch):
    monkeypatch.setattr(heavy, "BOMB", 10**6)
    monkeypatch.setattr(heavy, "_DEFLATED", {})
    try:
        reader = readers.READERS[name](tmp_path / "files")
        cases = [*heavy._cases(reader.files)]
        for number, (_, file, spoil) in enumerate(cases):
            spoil(tmp_path / f"{number}-{file.rpartition('/')[2]}")
        assert len(cases) >= 9 * len(reader.files)
    finally:
        reader.patch.undo()


class Deadly(readers.Reader):
    """A reader that ends its process."""

    strict = False

    def make(self):
        self.files = {"a": b"some bytes"}

    def read(self):
        os._exit(7)


def test_a_reader_that_ends_its_process_has_failed(monkeypatch):
    monkeypatch.setitem(readers.READERS, "deadly", Deadly)
    tally = readers.damaged("deadly", 1, 10, 1)
    assert tally.lines["deadly"].failed == 1
    assert "the process died (7) with {'a': b" in failures(tally)[0]


def test_a_few_elections_and_refits():
    assert not failures(Tally().merge(elections.batch(1, number, size=20) for number in range(3)))
    tally = refits.one(1, 0, "GaussianNB", defaults=False, few=True)
    assert tally.lines["members that an edit does not reach"].tried > 10
    assert not failures(tally)


def test_a_few_targets():
    tally = Tally().merge(targets.batch(1, number, size=10) for number in (1, 5, 6))
    assert len(tally.lines) == 15
    assert not failures(tally)


def test_the_brute_force_for_targets_agrees_with_the_adversary_that_tries_every_ballot():
    rng = np.random.default_rng(3)
    for n_members, n_classes in [(1, 3), (3, 2), (4, 2), (3, 3), (2, 4)] * 3:
        scores = rng.integers(0, 5, (1, n_members, n_classes)).astype(np.float32)
        spread = [rng.choice(n_members, size).tolist() for size in rng.integers(0, 2, 3)] if rng.integers(2) else None
        for election in RULES:
            for to in range(n_classes):
                expected = true_cost(election, ballots_of(scores[0]), spread, to=to)
                assert targets.truth_to(scores, election, spread, to)[0] == min(NEVER, expected)


def test_refits_of_sources_and_labels():
    make = refits.estimators(False)["GaussianNB"]
    tally = units.labels(1, 1, "GaussianNB", make)
    assert tally.lines["members that an edit does not reach, labels"].tried > 10
    assert not failures(tally)
    rng = np.random.default_rng(0)
    X, y, groups, _ = units.dataset(rng)
    assert len([*units.edits(X, y, groups, rng)]) == len(units.HOSTILE) + 10


def test_what_fails_is_counted_and_written(tmp_path, monkeypatch, capsys):
    broken = Tally()
    broken.add("things", 5)
    broken.fail("things", "the third one")
    monkeypatch.setattr(elections, "run", lambda *_: broken)
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- elections -->\nold\n<!-- end of elections -->\nafter\n")
    monkeypatch.setattr("sys.argv", ["torture", "--part", "elections", "--write", str(page)])
    assert campaign.main() == 1
    assert "the third one" in capsys.readouterr().out
    text = page.read_text()
    assert "| elections | things | 5 | 1 |" in text
    assert f"commit {table.commit()}" in text
    assert "old" not in text
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    again = Tally().merge([broken, broken])
    assert (again.lines["things"].tried, again.failed) == (10, 2)


def test_guards_see_what_they_guard_against(monkeypatch, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setattr(guard, "HANGS", 0.2)
    assert "hangs" in guarded((tmp_path / "pipe").read_bytes).excess
    monkeypatch.setattr(guard, "SECONDS", 0.0)
    assert "takes" in guarded(lambda: sum(range(10**5))).excess
    monkeypatch.undo()
    np.ones(2 * 10**8)  # an earlier, higher peak
    assert "MB" in guarded(lambda: np.ones(7 * 10**7)).excess
    assert guarded(lambda: 3).result == 3
    assert sentence(ValueError("one.npy is bad"), (ValueError,), ("one.npy",)) is None
    assert "KeyError" in sentence(KeyError("x"), (ValueError,), ())
    assert "one sentence" in sentence(ValueError("a\nb"), (ValueError,), ())
    assert "about" in sentence(ValueError("bad"), (ValueError,), ("one.npy",))


def test_damage_changes_something():
    rng = np.random.default_rng(0)
    document = json.dumps({"a": [1, {"b": "text"}], "files": {"x": "0" * 8}}).encode()
    assert len({damage.in_json(rng, document) for _ in range(50)}) > 25
    array = damage.array_bytes(np.arange(12.0).reshape(2, 3, 2))
    assert len({damage.in_npy(rng, array) for _ in range(50)}) > 25
    assert all(damage.in_bytes(rng, array) != array for _ in range(50))


@pytest.mark.slow
def test_the_compiled_adversary_on_thousands_of_spreads():
    rng = np.random.default_rng(0)
    for _ in range(3000):
        n_classes = int(rng.integers(2, 5))
        n_members = int(rng.integers(1, {2: 6, 3: 5, 4: 4}[n_classes]))
        scores = rng.integers(0, 4, (1, n_members, n_classes))
        spread = elections._spread(rng, n_members)
        agrees_with_every_ballot(scores, spread)


@pytest.mark.slow
@pytest.mark.parametrize("part", campaign.PARTS)
def test_every_part_on_a_small_scale(part, monkeypatch):
    monkeypatch.setattr("sys.argv", ["torture", "--part", part, "--scale", "0.01", "--jobs", "2"])
    assert campaign.main() == 0
