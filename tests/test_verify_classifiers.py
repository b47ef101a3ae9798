"""The whole report on small classifiers, on claims that are off, and on attestations; and the parts by hand."""

import datetime
import hashlib
import json
import shutil
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import runoff
from runoff import check, hashing, samples, verify
from runoff.verify import _content, _parts, _radii, attestation, networks
from verified import IMAGES, Members, Y, a_classifier, dataset, floats, listed

X = IMAGES[:30].reshape(30, -1).astype(float)
NAMES = np.array(["cat", "dog", "bird"])[Y]
CLASSES = ["bird", "cat", "dog"]
PARTITION = "the spread and the fingerprint of the partition, derived again from key and settings"
SETS = "the training sets of 6 members, 60 rows in total, hashed and divided again"
RADII = (
    "certify: {0} predictions and radii (runoff, tight bound{1}); for {0} an attack on radius + 1 buckets was "
    "replayed, so they are exact; {0} by integer programming too"
)
RETRAIN = "that retraining gives the same members: --retrain N checks N of them"


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return a_classifier(tmp_path_factory.mktemp("saved") / "model", X, NAMES)


@pytest.fixture
def path(original, tmp_path):
    return shutil.copytree(original[0], tmp_path / "model")


@pytest.fixture
def members(original):
    return Members(original[1], CLASSES)


def verified(path, members, X=X, y=NAMES, **options):
    return verify.classifier(path, X, y, members=members, **{"sample": 2, "seed": 1, **options})


def failures(report):
    return [(failure.code, str(failure)) for failure in report.failures]


# --- reports ----------------------------------------------------------------------------------------------------------


def test_the_report_on_a_classifier(path, members):
    told = []
    report = verified(path, members, retrain=2, progress=told.append)
    assert report.checked == [
        "the SHA-256 of 9 files, before any of them was parsed", PARTITION, SETS, RADII.format(2, ""),
        "2 members retrained, bit for bit the same: 1, 3",
    ]  # fmt: skip
    assert (report.not_checked, report.failures, report.subject) == ([], [], str(path))
    assert set(report.facts) == {"seed", "manifest_sha256"}
    assert report.facts["seed"] == 1
    assert told == [
        "hashing the samples", "scoring inputs", "proving radii", "training member 1", "training member 3",
    ]  # fmt: skip
    assert verified(path, members).not_checked == [RETRAIN]
    assert RADII.format(4, "") in verified(path, members, full=True, inputs=X[:4], sample=9).checked
    report = verified(path, members, inputs=X[:1])
    assert RADII.format(1, "") in report.checked
    assert verified(path, members, retrain=1).checked[-1] == "1 member retrained, bit for bit the same: 3"


def test_what_was_not_passed_is_told(path, members):
    report = verify.classifier(path, seed=0)
    assert report.not_checked == [
        "the training sets of the members: the training data was not passed",
        "predictions and radii: no training code was passed",
        RETRAIN,
    ]
    report = verify.classifier(path, X, None, members=members, why_no_data="lost", sample=1, seed=0, retrain=1)
    assert report.not_checked == [
        "the training sets of the members: lost", "1 member retrained: this needs the training data",
    ]  # fmt: skip
    assert RADII.format(1, "") in report.checked
    report = verify.classifier(path, members=members, sample=1, seed=0)
    assert report.not_checked[1] == "predictions and radii: no inputs were passed"
    report = verify.classifier(path, X, NAMES, members=lambda: (None, "no memory"), retrain=2, seed=0)
    assert report.not_checked == ["predictions and radii: no memory", "2 members retrained: no memory"]
    members.why = "other hardware"
    assert verified(path, members, retrain=1).not_checked == ["1 member retrained: other hardware"]


@pytest.mark.parametrize("unit", ["sources", "labels"])
def test_a_radius_may_count_sources_or_labels(unit, tmp_path):
    groups = [f"s{i % 7}" for i in range(30)] if unit == "sources" else None
    path, partition = a_classifier(tmp_path / "model", X, NAMES, unit=unit, groups=groups)
    members = Members(partition, CLASSES)
    report = verified(path, members, groups=groups)
    assert report.failures == []
    told = {"sources": "sources, whatever they contribute",
            "labels": "changed labels; inserted and deleted samples are not covered"}[unit]  # fmt: skip
    assert RADII.format(2, f"; radii count {told}") in report.checked
    if unit == "sources":
        report = verified(path, members)
        assert report.not_checked == [
            "the training sets of the members: they are divided by source, and no groups were passed (of a table, by "
            "--group-column)",
            RETRAIN,
        ]
        assert failures(verified(path, members, groups=groups[1:])) == [(4, "the data: has 30 samples and 29 groups")]
        swapped = [*groups[1:], groups[0]]
        assert failures(verified(path, members, groups=swapped))[0][1].startswith("member 0: ")
        assert verify.classifier(path, None, None, seed=0).not_checked[0].endswith("the training data was not passed")


def test_claims_that_are_off_are_named(path, members, original):
    members.boast = 1
    report = verified(path, members, sample=7, retrain=1)
    assert report.exit_code == 3
    told = failures(report)
    assert [text.split(": ")[0] for _, text in told] == [*(f"certify, input {i}" for i in range(5)), "certify"]
    assert told[-1] == (3, "certify: 2 more certificates are wrong or not proven")
    assert report.checked[-1] == "1 member retrained, bit for bit the same: 3"

    class Swaps(Members):
        def certify(self, inputs):
            prediction, runner_up, radius = super().certify(inputs)
            return (runner_up, prediction, radius) if self.boast == 0 else (prediction, np.roll(CLASSES, 1)[:1], radius)

    told = failures(verified(path, Swaps(original[1], CLASSES), sample=1))
    assert told[0][0] == 3
    assert "the prediction is class " in told[0][1]

    class Strange(Members):
        def certify(self, inputs):
            prediction, runner_up, radius = super().certify(inputs)
            return (np.array(["?"] * len(radius)), runner_up, radius) if self.boast else (
                prediction, np.array(["?"] * len(radius)), radius
            )  # fmt: skip

    assert failures(verified(path, Strange(original[1], CLASSES, boast=1), sample=1))[0][1].endswith("claimed -1")
    told = failures(verified(path, Strange(original[1], CLASSES), sample=1))
    assert "the runner-up is class" in told[0][1]
    assert told[0][1].endswith("claimed -1")


def test_members_that_cannot_be_asked(path, original):
    class Fails(Members):
        def scores(self, inputs):  # noqa: ARG002
            raise ValueError("no scores today")

    assert "predictions and radii: no scores today" in verified(path, Fails(original[1], CLASSES)).not_checked

    class Differs(Members):
        def retrained(self, member, X, y, rows):
            stored, again = super().retrained(member, X, y, rows)
            return {**stored, "a": "1", "b": "1"}, {**again, "a": "1", **({"b": "2"} if member % 2 else {"b": "1"})}

    report = verified(path, Differs(original[1], CLASSES), retrain=6)
    assert failures(report) == [(4, f"member {m}: differs from the retrained member: b") for m in (1, 3, 5)]
    assert report.checked[-1] == "3 members retrained, bit for bit the same: 0, 2, 4"


def test_an_election_that_is_unknown_is_not_checked(path, members):
    for name, value in (("election", "lottery"), ("bound", "loose")):
        manifest = json.loads((path / "manifest.json").read_text())
        listed(path, lambda m, name=name, value=value: m["settings"].update({name: value}))
        told = verified(path, members).not_checked
        expected = "'lottery'" if name == "election" else "'runoff'"
        assert told == [f"predictions and radii: the election {expected} is unknown", RETRAIN]
        (path / "manifest.json").write_text(json.dumps(manifest))
        listed(path)
    listed(path, lambda m: m["settings"].update(bound="paper"))
    members.bound = "paper"
    assert "(runoff, paper bound)" in verified(path, members).checked[-1]


def array(name, value):
    return lambda path: np.save(path / name, value)


def setting(change):
    return lambda path: listed(path, change)


SIZES = "classes.npy, member_sizes.npy: must list each class once, and one size per member"
MANIFEST = "manifest.json: records "
FORGED = {
    "a class twice": (array("classes.npy", np.array(["a", "a", "b"])), SIZES),
    "one class": (array("classes.npy", np.array("a")), SIZES),
    "classes in rows": (array("classes.npy", np.array([["a"], ["b"]])),
                        "classes.npy, member_sizes.npy: unhashable type: 'list'"),
    "sizes of fewer": (array("member_sizes.npy", np.arange(5)), SIZES),
    "sizes as floats": (array("member_sizes.npy", np.arange(6.0)), SIZES),
    "no classes": (lambda p: (p / "classes.npy").unlink(),
                   "classes.npy, member_sizes.npy: cannot be read (No such file or directory)"),
    "a size": (array("member_sizes.npy", np.arange(6) + 100), "member 0: has {} training samples, 100 are recorded"),
    "a member less": (lambda p: (p / "members" / "000005.skops").unlink(),
                      "members/000005.skops: does not match the 6 members of the partition"),
    "a member more": (lambda p: (p / "members" / "000006.skops").write_bytes(b""),
                      "members/000006.skops: does not match the 6 members of the partition"),
    "a number of members": (setting(lambda m: m.update(members=7)),
                            "manifest.json: does not match the 6 members of the partition"),
    "a unit": (setting(lambda m: m.update(unit="x")),
               "manifest.json: must count one of samples, sources, labels, got 'x'"),
    "offsets": (setting(lambda m: m["partition"].__setitem__(2, [0, 1])),
                MANIFEST + "the offsets [0, 1], but {offsets} follow from the seed"),
    "a partition": (setting(lambda m: m["partition"].__setitem__(0, 4)),
                    MANIFEST + "the offsets None, but {offsets} follow from the seed"),
    "a spread": (setting(lambda m: m["partition"].__setitem__(1, 4)),
                 MANIFEST + "the offsets None, but {offsets} follow from the seed"),
    "a hash": (setting(lambda m: m["partition"].__setitem__(3, "pixel-sum")),
               MANIFEST + "the offsets None, but {offsets} follow from the seed"),
    "a long partition": (setting(lambda m: m["partition"].append(3)),
                         MANIFEST + "the offsets None, but {offsets} follow from the seed"),
    "a partition of another kind": (setting(lambda m: m.update(partition={"offsets": m["partition"][2]})),
                                    MANIFEST + "the offsets None, but {offsets} follow from the seed"),
    "a fingerprint": (setting(lambda m: m.update(fingerprint="0")),
                      MANIFEST + "a fingerprint of the partition that does not follow from key and settings"),
    "a key": (lambda p: (p / "key").write_bytes(bytes(32)),
              MANIFEST + "a fingerprint of the partition that does not follow from key and settings"),
    "a run": (setting(lambda m: m.update(format="runoff run", version=1, dataset={"classes": ["a", "b"]})),
              "manifest.json: describes a run, not a saved classifier"),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGED)
def test_what_is_forged_is_named(name, path, members, original):
    change, expected = FORGED[name]
    before = (path / "manifest.json").read_text()
    sizes = np.load(path / "member_sizes.npy").tolist()
    change(path)
    if (path / "manifest.json").read_text() == before:
        listed(path)
    told = failures(verified(path, members))
    offsets = str(list(original[1].offsets))
    assert told[0] == (4, expected.replace("{offsets}", offsets).replace("{}", str(sizes[0])))


def test_a_classifier_is_not_verified_as_a_run(path):
    assert failures(verify.run(path, dataset())) == [(4, "manifest.json: describes a saved classifier, not a run")]


def test_data_that_do_not_fit_are_named(path, members):
    assert failures(verified(path, members, y=["mauve", *NAMES[1:]])) == [
        (4, "the data: has the label 'mauve' of sample 0, which is not one of the classes")
    ]
    assert failures(verified(path, members, X=X[1:])) == [(4, "the data: has 29 samples and 30 labels")]
    report = verified(path, members, y=np.roll(NAMES, 1))
    assert {text.split(": ")[1] for _, text in failures(report)} == {
        "was not trained on the samples that follow from data, key and spread"
    }
    assert len(report.failures) == 5
    assert len(report.checked) == 2
    strange = pd.DataFrame({"a": [[1]] * 30})
    assert failures(verified(path, members, X=strange)) == [
        (4, "the data: a table must hold numbers, strings and dates, got a list")
    ]


def kinds():
    table = pd.DataFrame(X).assign(word=NAMES)
    return {
        "table": table, "texts": [f"{name} {i}" for i, name in enumerate(NAMES)],
        "sparse": sparse.csr_matrix(X), "columns": sparse.csc_matrix(X), "lists": X.tolist(),
    }  # fmt: skip


@pytest.mark.parametrize("name", kinds())
def test_data_of_every_kind(name, tmp_path):
    X = kinds()[name]
    path, partition = a_classifier(tmp_path / "model", X, NAMES, k=4, d=1)

    class Looks(Members):
        def scores(self, inputs):
            seen.append(inputs)
            return super().scores(inputs)

    seen = []
    report = verified(path, Looks(partition, CLASSES), X=X, retrain=1)
    assert report.failures == []
    assert report.not_checked == []
    rows = np.sort(np.random.default_rng(1).permutation(30)[:2])
    dense = X.toarray() if hasattr(X, "toarray") else X
    expected = dense.iloc[rows] if name == "table" else [dense[i] for i in rows]
    got = seen[0].toarray() if hasattr(seen[0], "toarray") else seen[0]
    assert np.asarray(got).tolist() == np.asarray(expected).tolist()


# --- networks ---------------------------------------------------------------------------------------------------------


def test_networks_are_counted_and_their_shares_compared(tmp_path):
    images = networks.arranged(IMAGES[:30])
    path, partition = a_classifier(tmp_path / "model", images, NAMES, networks_of=[2, 1, 0, 2, 2, 2])
    members = Members(partition, CLASSES)
    report = verified(path, members, X=IMAGES[:30], retrain=1)
    assert (report.failures, report.not_checked) == ([], [])
    assert report.checked[0] == "the SHA-256 of 13 files, before any of them was parsed"
    tensor = SimpleNamespace(
        shape=images.transpose(0, 3, 1, 2).shape, detach=lambda: tensor, cpu=lambda: tensor, dtype="torch.uint8",
        numpy=lambda: images.transpose(0, 3, 1, 2),
    )  # fmt: skip
    assert verified(path, None, X=tensor).failures == []
    half = SimpleNamespace(
        detach=lambda: half, cpu=lambda: half, dtype="torch.bfloat16", float=lambda: tensor, shape=tensor.shape,
    )  # fmt: skip
    assert verified(path, None, X=half).failures == []
    flat = SimpleNamespace(**vars(tensor) | {"detach": lambda: flat, "cpu": lambda: flat, "numpy": lambda: X})
    wide, _ = a_classifier(tmp_path / "wide", X, NAMES, networks_of=[0] * 6)
    assert verified(wide, None, X=flat).failures == []
    assert verified(wide, None, X=pd.DataFrame(X)).failures == []

    def told(change):
        copy = shutil.copytree(path, tmp_path / "copy")
        before = (copy / "manifest.json").read_text()
        change(copy)
        if (copy / "manifest.json").read_text() == before:
            listed(copy)
        found = failures(verified(copy, None, X=IMAGES[:30]))
        shutil.rmtree(copy)
        return found[0]

    for counts in ([2] * 5, {"a": 1}, [2, 1, -1, 2, 2, 2], [2, 1, False, 2, 2, 2], None):
        assert told(lambda p, counts=counts: listed(p, lambda m: m.update(networks=counts))) == (
            4, "manifest.json: must list the number of networks of 6 members",
        )  # fmt: skip
    fits = "does not match the 6 members of the partition"
    assert told(lambda p: listed(p, lambda m: m["networks"].__setitem__(2, 1))) == (
        4, f"members/000002-0000.safetensors: {fits}",
    )  # fmt: skip
    assert told(lambda p: listed(p, lambda m: m["networks"].__setitem__(1, 10**30)))[1].endswith(fits)
    assert told(lambda p: (p / "members" / "000003-0001.safetensors").unlink()) == (
        4, f"members/000003-0001.safetensors: {fits}",
    )  # fmt: skip
    shares = np.load(path / "shares.npy")
    wrong = shares.copy()
    wrong[4, 1] += 1e-9
    assert told(lambda p: np.save(p / "shares.npy", wrong)) == (
        4, "shares.npy, member 4: does not hold the member's class shares",
    )  # fmt: skip
    assert told(lambda p: np.save(p / "shares.npy", shares[:, :2]))[1].startswith("shares.npy, member 0: does not")
    assert told(lambda p: np.save(p / "shares.npy", shares[:5]))[1].startswith("shares.npy, member 0: does not")
    assert told(lambda p: (p / "shares.npy").unlink()) == (
        4, "shares.npy: cannot be read (No such file or directory)",
    )  # fmt: skip


# --- attestations -----------------------------------------------------------------------------------------------------

FACTS = {
    "seed": 3, "manifest_sha256": "ab" * 32, "dataset": {"name": "d"}, "versions": {"a": "1"}, "trained_by": None,
    "settings": {"k": 1}, "election": "runoff", "edits": 0,
    "certificates": [{"file": "a.csv", "certified_accuracy": {"0": 0.5}}, {"file": "b.csv"}],
}  # fmt: skip


def a_report(**facts):
    return verify.Report("run", ["one"], ["two"], facts=json.loads(json.dumps(FACTS | facts)))


def compared(tmp_path, statement, report=None):
    report = report or a_report()
    (tmp_path / "a.json").write_text(statement if isinstance(statement, str) else json.dumps(statement))
    attestation.compare(tmp_path / "a.json", report)
    assert all(failure.where == str(tmp_path / "a.json") for failure in report.failures)
    return [failure.what for failure in report.failures] or report.checked[1:]


def test_a_statement_and_what_it_is_compared_with(tmp_path):
    statement = attestation.statement(a_report())
    assert statement == {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": "manifest.json", "digest": {"sha256": "ab" * 32}}],
        "predicateType": "urn:runoff:attestation:1",
        "predicate": {
            **{name: FACTS[name] for name in ("dataset", "versions", "trained_by", "settings", "election", "edits")},
            "certificates": FACTS["certificates"],
            "verification": {"checked": ["one"], "not_checked": ["two"]},
        },
    }
    bare = attestation.statement(verify.Report("run", facts={"manifest_sha256": "cd"}))
    assert bare["predicate"] == {"certificates": [], "verification": {"checked": [], "not_checked": []}}
    right = "a.json attests to this manifest and to these results"
    assert compared(tmp_path, statement) == [right]
    few = {**statement, "predicate": {**statement["predicate"], "certificates": FACTS["certificates"][1:]}}
    assert compared(tmp_path, few) == [right]
    none = {**statement, "predicate": {k: v for k, v in statement["predicate"].items() if k != "certificates"}}
    assert compared(tmp_path, none) == [right]


def test_statements_that_are_refused(tmp_path):
    statement = attestation.statement(a_report())
    predicate = statement["predicate"]
    is_none = ["is not an attestation of a run"]
    for change in ({"_type": "x"}, {"predicateType": "x"}, {"predicate": []}, {"subject": []}, {"subject": 5},
                   {"subject": statement["subject"] * 2}, {"predicate": {"certificates": {}}}):  # fmt: skip
        assert compared(tmp_path, {**statement, **change}) == is_none
    for subject in ({}, {"digest": []}, {"name": "x", "digest": statement["subject"][0]["digest"]}):
        assert compared(tmp_path, {**statement, "subject": [subject]}) == [
            "attests to a manifest.json other than the one in this directory"
        ]
    for text in ("[]", "5", "{}"):
        assert compared(tmp_path, text) == is_none
    assert compared(tmp_path, "{") == ["is not JSON"]
    report = a_report()
    attestation.compare(tmp_path / "absent", report)
    assert failures(report) == [(4, f"{tmp_path / 'absent'}: cannot be read (No such file or directory)")]
    other = a_report(manifest_sha256="cd")
    assert compared(tmp_path, statement, other) == ["attests to a manifest.json other than the one in this directory"]
    for name in attestation.FIELDS:
        altered = {**statement, "predicate": {**predicate, name: "x"}}
        assert compared(tmp_path, altered) == [f"disagrees with the run about {name}"]
    better = [{"file": "a.csv", "certified_accuracy": {"0": 0.6}}]
    altered = {**statement, "predicate": {**predicate, "certificates": better}}
    assert compared(tmp_path, altered) == ["claims a certified accuracy that differs from that of a.csv"]
    for entry, named in (({"file": "c.csv"}, "'c.csv'"), (7, "None"), ({}, "None")):
        altered = {**statement, "predicate": {**predicate, "certificates": [FACTS["certificates"][0], entry]}}
        assert compared(tmp_path, altered) == [f"claims certified accuracy from {named}, which was not verified"]


def test_signatures_need_a_program_and_files(tmp_path, monkeypatch):
    (tmp_path / "a.json").write_text("{}")
    report = verify.Report("")
    monkeypatch.setattr(attestation.shutil, "which", lambda _: None)
    attestation.check_signature(tmp_path / "a.json", tmp_path / "s", tmp_path / "k", "me", report)
    assert failures(report) == [
        (4, f"{tmp_path / 's'}: cannot be checked: ssh-keygen (OpenSSH 8.1 or later) is not installed")
    ]
    program = tmp_path / "ssh-keygen"
    monkeypatch.setattr(attestation.shutil, "which", {"ssh-keygen": str(program)}.get)
    report = verify.Report("")
    attestation.check_signature(tmp_path / "a.json", tmp_path / "s", tmp_path / "k", "me", report)
    names = ", ".join(str(tmp_path / name) for name in ("a.json", "s", "k"))
    assert failures(report) == [(4, f"{names}: cannot be read (No such file or directory)")]
    (tmp_path / "s").write_text("signature")
    (tmp_path / "k").write_text("keys")
    wanted = f"-Y verify -f {tmp_path / 'k'} -I me -n runoff -s {tmp_path / 's'}"
    for script, expected in (
        (f'[ "$*" = "{wanted}" ] && [ "$(cat)" = "{{}}" ]', None),
        ("echo ignored; echo 'bad signature' >&2; exit 1", "bad signature"),
        ("exit 255", "refused"),
        (r"printf '\377bad\n' >&2; exit 1", "\ufffdbad"),
    ):
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o700)
        report = verify.Report("")
        attestation.check_signature(tmp_path / "a.json", tmp_path / "s", tmp_path / "k", "me", report)
        if expected is None:
            assert (report.checked, report.failures) == (["s is a signature of me over a.json"], [])
        else:
            assert (report.checked, failures(report)) == (
                [], [(4, f"{tmp_path / 's'}: is not a valid signature of me ({expected})")],
            )  # fmt: skip


# --- claims -----------------------------------------------------------------------------------------------------------


def test_the_error_of_the_second_method():
    fine, unsure = check.Verdict(exact=True), check.Verdict("gave up", unproven=True)
    second = _radii._second
    assert second(3, fine, (4, 4), True) is second(3, fine, (4, 9), True) is second(3, fine, (9, 9), False) is None
    assert second(3, fine, (5, 6), True) == "the radius is 4 by integer programming, claimed 3"
    assert second(3, fine, (2, 3), False) == "the radius is 2 by integer programming, claimed 3"
    assert second(3, fine, (1, 1), True) == "the radius is 0 by integer programming, claimed 3"
    assert second(3, unsure, (3, 4), False) == "gave up"
    assert second(3, fine, (3, 4), False) == ("the claimed radius 3 could not be proven by integer programming in 10 s")


def claims(ballots, spread, more=0, election="runoff", bound="tight", unit="samples"):
    found = runoff.certify(ballots, election=election, bound=bound, spread=spread)
    return _radii.Certificates("rows", election, bound, found.prediction, found.runner_up, found.radius + more, unit)


def test_claims_are_proven_within_a_time(monkeypatch):
    draws = np.random.default_rng(0)
    ballots = runoff.rank(draws.normal(size=(6, 7, 3)) + np.array([1.0, 0, 0]))
    asked = []
    solve = _radii.by_programming
    monkeypatch.setattr(_radii, "by_programming", lambda *a: asked.append(a[2:]) or solve(*a))
    alone = [[j] for j in range(7)]
    for sample, seconds, n in (([1, 4], 60, 2), ([], 60, 0), (range(6), 60, 6), (range(6), -1, 0)):
        asked.clear()
        report = verify.Report("")
        _radii.prove(claims(ballots, None), ballots, alone, sample, report, seconds)
        assert len(asked) == n
        assert report.checked == [
            "rows: 6 predictions and radii (runoff, tight bound); for 6 an attack on radius + 1 buckets was replayed, "
            f"so they are exact; {n} by integer programming too"
        ]
        assert all(reach is None for reach, _ in asked)
    two = [[j, (j + 2) % 7] for j in range(7)]
    report = verify.Report("")
    asked.clear()
    _radii.prove(claims(ballots, two, bound="paper", unit="labels"), ballots, two, [0], report)
    assert "(runoff, paper bound; radii count changed labels; inserted" in report.checked[0]
    assert asked[0][0].buckets == two
    wide = runoff.rank(draws.normal(size=(1, 3, 300)))
    report = verify.Report("")
    _radii.prove(claims(wide, None), wide, alone[:3], [], report)
    assert report.failures == []


def test_a_claim_below_the_exact_radius_is_wrong_only_where_it_must_be_exact():
    ballots = runoff.rank(np.random.default_rng(0).normal(size=(4, 13, 3)) + np.array([3.0, 0, 0]))
    alone = [[j] for j in range(13)]
    report = verify.Report("")
    _radii.prove(claims(ballots, None, more=-1), ballots, alone, [0], report)
    assert report.exit_code == 3
    assert len(report.failures) == 4
    report = verify.Report("")
    lower = claims(ballots, None, election="maximin")
    lower.radius[:] = np.maximum(lower.radius - 1, 0)
    _radii.prove(lower, ballots, alone, [0], report)
    spread = [[j, (j + 1) % 13] for j in range(13)]
    report = verify.Report("")
    lower = claims(ballots, spread)
    assert lower.radius.max() > 1
    before = lower.radius.copy()
    paper = claims(ballots, spread, bound="paper").radius
    lower.radius[:] = np.maximum(before - 1, paper)
    _radii.prove(lower, ballots, spread, range(2), report)
    assert report.failures == []


# --- parts ------------------------------------------------------------------------------------------------------------


def literal_members(values, offsets, n_members, keys):
    members = [[] for _ in range(n_members)]
    for i in sorted(range(len(values)), key=lambda i: keys[i]):
        for offset in offsets:
            members[(values[i] + offset) % n_members].append(i)
    return members


def test_the_division_of_samples():
    codes = Y - 1  # class codes may be any integers
    for unit, hash_ in (
        ("samples", "content"),
        ("samples", "pixel-sum"),
        ("sources", "content"),
        ("labels", "content"),
    ):
        parts = _parts.Parts(3, 2, 5, hash_, bytes(range(16)), unit)
        images = IMAGES[:30].copy()
        images[7] = images[3]
        groups = [f"s{i % 4}" for i in range(30)]
        divided = parts.divide(images, codes, groups=groups if unit == "sources" else None)
        digests = _content.digests(images, parts.key)
        halves = [(int.from_bytes(d[:8], "little"), int.from_bytes(d[8:], "little")) for d in digests]
        if unit == "sources":
            values = [int.from_bytes(d[:8], "little") for d in _content.source_digests(groups, 30, parts.key)]
        elif unit == "labels":
            order = sorted({*halves})
            values = [order.index(half) for half in halves]
        else:
            values = [h[0] for h in halves] if hash_ == "content" else images.reshape(30, -1).sum(axis=1).tolist()
        keys = [(*half, int(code)) for half, code in zip(halves, codes, strict=True)]
        assert divided.rows == literal_members(values, parts.offsets, 6, keys)
        assert parts.spread() == [[(b + o) % 6 for o in parts.offsets] for b in range(6)]
        assert (divided.digests, divided.codes) == (digests, codes.tolist())
        told = b"".join(digests[i] + int(codes[i]).to_bytes(8, "little", signed=True) for i in divided.rows[2])
        assert divided.training_set(2) == hashlib.sha256(told).hexdigest()
    other = _parts.Divided([[0, 1, 2], []], [b""] * 3, [0, 2, 2])
    np.testing.assert_array_equal(other.shares(0, 4), [1 / 3, 0, 2 / 3, 0])
    assert other.shares(1, 2).tolist() == [0, 0]
    known = _parts.Parts(4, 1, 0, "content", b"k" * 16)
    assert (known.offsets, known.n_members, known.unit) == ([0], 4, "samples")
    swapped = _parts.Parts(1, 1, 0, "content", bytes(16)).divide(np.array([[1], [2]]), [0, 0])
    assert len(swapped.rows[0]) == 2


def test_the_second_half_of_a_digest_and_the_class_decide_the_order(monkeypatch):
    digests = [bytes([7] * 8 + [n] + [0] * 6 + [m]) for n, m in ((1, 1), (2, 0), (2, 0), (1, 0))]
    monkeypatch.setattr(_content, "digests", lambda *_: digests)
    divided = _parts.Parts(1, 1, 0, "content", bytes(16)).divide(None, [0, 1, 0, 0])
    assert divided.rows == [[3, 2, 1, 0]]
    divided = _parts.Parts(5, 1, 0, "content", bytes(16), "labels").divide(None, [0, 1, 0, 0])
    assert divided.rows == [[3], [2, 1], [0], [], []]


def test_names_of_sources_and_odd_values():
    def same(*values):
        return len({_content.source_bytes(value) for value in values}) == 1

    assert same(7, 7.0, "7", "7.0", np.int8(7), np.float32(7))
    assert same("-7", -7, "-7.0")
    assert same("0", 0, "-0", "-0.0", -0.0)
    assert same("a", "a\0\0")
    assert same("e\u0301", "\u00e9")
    assert not same("a", "\0a")
    assert not same("7", "07")
    assert not same("7", "7.00")
    assert not same("00", "0")
    assert not same("-", "")
    assert _content.source_bytes("007") == b"\xfd" + _content.text_cell("007")
    assert _content.source_bytes(2**70) == b"\xfd" + _content.text_cell(str(2**70))
    for fine in (2.0**53 - 1, np.float32(2**24 - 1), np.float16(2**11 - 1), f"{2**53 - 1}.0", "9" * 17, "1e7", "ae+1",
                 "12e+7", "1.5.5e+7", "(1j", "1j)", "1.e+7", "1e+", "\u0661e+1", "1e+\u0661"):  # fmt: skip
        _content.source_bytes(fine)
    for wrong in (2.0**53, -(2.0**53), np.float32(2**24), np.float16(2**11), 0.5, np.nan, np.inf, -np.inf, True, None,
                  b"a", 1j, "1e+07", "-1e+7", "1.5e+20", "(1+2j)", f"{2**53}.0", "9" * 17 + ".0"):  # fmt: skip
        with pytest.raises(ValueError, match=r"the groups (have|must be)"):
            _content.source_bytes(wrong)
    with pytest.raises(ValueError, match="has 3 samples and 2 groups"):
        _content.source_digests(["a", "b"], 3, b"k" * 16)
    assert _content.source_digests(np.array(["a", "b"]), 2, b"k" * 16) == _content.source_digests(
        ("a", "b"), 2, b"k" * 16
    )
    assert _content.number_of(10**400) == float("inf")
    assert _content.number_of(-(10**400)) == float("-inf")
    assert _content.number_of("1") is None
    assert _content.number_of(True) == 1.0


VALUES = [None, pd.NA, np.nan, 1, True, 0.5, -0.0, 10**400, np.int8(3), np.float32(0.5), "e\u0301", "", b"ab", b""]
VALUES += [datetime.datetime(2020, 1, 2, 3, 4, 5, 6), datetime.date(2020, 1, 2), pd.Timestamp("2020-01-02 03:04")]
VALUES += [datetime.timedelta(2, 3, 4), pd.Timedelta(7, "ns"), datetime.timedelta(-1)]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values_of_tables_have_the_bytes_that_members_are_hashed_by(value):
    assert _content.table_cell(value) == hashing.cell(value)
    given = pd.DataFrame({"a": pd.Series(["x"], dtype=object), "b": pd.Series([value], dtype=object)})
    assert list(_content.contents(given)) == [bytes(row) for row in samples.from_any(given).content()]
    assert list(_content.contents(given)) == [b"\xff" + hashing.cell("x") + hashing.cell(value)]


def test_rows_by_hand():
    def number(kind, shape, dtype, *values):
        return bytes([kind]) + np.array(shape, "<i8").tobytes() + np.array(values, dtype).tobytes()

    cases = [
        (np.array([0, 255]), number(0, [2], "u1", 0, 255)),
        (np.array([0, 255], np.uint8), number(0, [2], "u1", 0, 255)),
        (np.array([0, 256]), number(1, [2], "<i8", 0, 256)),
        (np.array([-1.0, 3]), number(1, [2], "<i8", -1, 3)),
        (np.array([2.0**63]), number(2, [1], "<f8", 2.0**63)),
        (np.array([-(2.0**63)]), number(2, [1], "<f8", -(2.0**63))),
        (np.array([2.0**62]), number(1, [1], "<i8", 2**62)),
        (np.array([-0.0, 0.5]), number(2, [2], "<f8", 0.0, 0.5)),
        (np.array([np.nan, 1]), number(2, [2], "<f8", np.nan, 1)),
        (np.array([[1], [2]]), number(0, [2, 1], "u1", 1, 2)),
        (np.array([-np.nan]), number(2, [1], "<f8", np.nan)),
        (np.zeros(0), number(0, [0], "u1")),
    ]
    for row, expected in cases:
        assert _content.number_row(row) == expected
    some = sparse.coo_matrix(([1.0, 2.0, -2.0, np.nan], ([0, 1, 1, 1], [2, 0, 0, 1])), shape=(3, 3))
    width = (3).to_bytes(8, "little")
    assert list(_content.sparse_rows(some)) == [
        width + np.array([2], "<i8").tobytes() + np.array([1.0]).tobytes(),
        width + np.array([1], "<i8").tobytes() + np.array([np.nan]).tobytes(),
        width,
    ]
    assert floats(np.array([1.0])).numbers().tolist() == [1.0]


def test_the_kind_of_a_directory(path):
    assert verify.kind_of(path) == "runoff classifier"
