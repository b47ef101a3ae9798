"""threat="labels": samples are trusted, an edit is one label changed, and a transformer may learn from all samples."""

import importlib
import itertools
import json
import sys
import warnings
from importlib import resources

import joblib
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.feature_selection import SelectKBest
from sklearn.linear_model import RidgeClassifier
from sklearn.manifold import TSNE
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

import runoff
from runoff import RunoffClassifier, check, estimates, hashing
from runoff.errors import InputError, StorageError
from runoff.partition import Partition
from runoff.report import _election_figure
from runoff.report.source import Source
from runoff.saving import proofs, rows

X, Y = load_digits(return_X_y=True)
X, Y, NEW, NEW_Y = X[:700], Y[:700], X[700:740], Y[700:740]
SHARED = make_pipeline(StandardScaler(), PCA(20))


def fitted(x=X, y=Y, **settings):
    known = {"estimator": RidgeClassifier(), "n_partitions": 9, "classes": range(10), "shared": SHARED}
    return RunoffClassifier(**known | {"threat": "labels"} | settings).fit(x, y)


def changed(a, b):
    def states(classifier):
        return [joblib.hash((m.classes.tolist(), m.shares, m.fitted)) for m in classifier.members_]

    return [m for m, (s, t) in enumerate(zip(states(a), states(b), strict=True)) if s != t]


BASE = fitted()


# -- the partition -----------------------------------------------------------------------------------------------------


@given(contents=st.lists(st.integers(0, 9), min_size=1, max_size=30), data=st.data())
def test_the_partition_reads_no_label_and_no_order(contents, data):
    """Buckets are a function of the multiset of contents; copies share one, and distinct contents are dealt evenly."""
    partition = Partition.make(4, 1, 0, hashing.derived_key(0), unit="labels")
    digests = hashing.digests((bytes([c]) for c in contents), partition.key)
    buckets = partition.buckets(None, digests)
    by_content = dict(zip(contents, buckets.tolist(), strict=True))
    assert [by_content[c] for c in contents] == buckets.tolist()
    sizes = np.bincount(list(by_content.values()), minlength=4)
    assert sizes.max() - sizes.min() <= 1
    order = data.draw(st.permutations(range(len(contents))))
    np.testing.assert_array_equal(partition.buckets(None, digests[order]), buckets[order])


def test_members_have_equal_parts():
    assert BASE.member_sizes_.max() - BASE.member_sizes_.min() <= 1
    assert fitted(spread=2).member_sizes_.max() - fitted(spread=2).member_sizes_.min() <= 2


@pytest.mark.parametrize("d", [1, 2])
def test_a_relabelling_touches_one_bucket_even_among_copies(d):
    """Copies of one sample with different labels: relabelling one of them must not move another."""
    x, y = np.concatenate([X, X[:1], X[:1], X[1:2]]), np.append(Y, [3, 5, 7])
    base = fitted(x, y, spread=d)
    for i in (0, 1, 17, len(X), len(X) + 1, len(X) + 2):
        for label in (0, 9):
            again = y.copy()
            again[i] = label
            edited = fitted(x, again, spread=d)
            expected = sorted(base.partition_.spread[base._buckets[i]].tolist()) if y[i] != label else []
            assert changed(base, edited) == expected
            np.testing.assert_array_equal(edited._buckets, base._buckets)


# -- the shared transformer --------------------------------------------------------------------------------------------


class Remembers(TransformerMixin, BaseEstimator):
    """Records what it is fitted on; unlike scikit-learn's own transformers, it would take labels."""

    def fit(self, X, y=None):
        self.seen_, self.labels_ = X.copy(), y
        return self

    def transform(self, X):
        return X


def test_the_shared_transformer_never_sees_a_label():
    shuffled = np.random.default_rng(0).permutation(Y)
    a, b = fitted(shared=Remembers()), fitted(y=shuffled, shared=Remembers())
    assert a.shared_.fitted.labels_ is None
    assert b.shared_.fitted.labels_ is None
    np.testing.assert_array_equal(a.shared_.fitted.seen_, b.shared_.fitted.seen_)
    assert joblib.hash(BASE.shared_.fitted) == joblib.hash(fitted(y=shuffled).shared_.fitted)


@pytest.mark.parametrize("d", [1, 2])
def test_the_order_of_the_samples_does_not_matter(d):
    x, y = np.concatenate([X, X[:40]]), np.append(Y, 9 - Y[:40])
    order = np.random.default_rng(0).permutation(len(y))
    a, b = fitted(x, y, spread=d), fitted(x[order], y[order], spread=d)
    assert changed(a, b) == []
    np.testing.assert_array_equal(a.scores(NEW).values, b.scores(NEW).values)


class Noisy(Remembers):
    def transform(self, X):
        return X + np.random.default_rng().normal(size=X.shape)


class Odd(Remembers):
    def fit(self, X):  # noqa: ARG002
        self.noise_ = np.random.default_rng().normal()
        return self

    def transform(self, X):
        return X + self.noise_


class Short(Remembers):
    def transform(self, X):
        return X[:-1]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"shared": Noisy()}, "shared must learn the same from the same samples every time, but Noisy does not"),
        ({"shared": Odd()}, "shared must learn the same from the same samples every time, but Odd does not"),
        ({"shared": Short()}, "but Short failed: InputError: shared must transform 256 samples into as many, got 255"),
        ({"shared": SelectKBest(k=5)}, "shared must learn from X only, without labels, but SelectKBest failed"),
        ({"shared": RidgeClassifier()}, "shared must be a transformer with fit and transform, such as PCA"),
        ({"shared": TSNE()}, "shared must be a transformer with fit and transform, such as PCA"),
        ({"shared": PCA}, "shared must be a transformer with fit and transform, such as PCA"),
        ({"threat": "samples"}, "so it needs threat='labels', where samples are trusted, got threat='samples': put"),
        ({"threat": "people"}, "threat must be one of 'samples', 'labels', got 'people'"),
        ({"hash": "pixel-sum"}, "hash must be 'content' if labels are counted, got 'pixel-sum'"),
    ],
)
def test_what_cannot_be_shared_is_refused(settings, message):
    with pytest.raises(InputError, match=message):
        fitted(**settings)


def test_groups_are_refused():
    with pytest.raises(InputError, match="groups cannot be used with threat='labels'"):
        RunoffClassifier(threat="labels", classes=range(10)).fit(X, Y, Y)


def test_random_numbers_of_the_transformer_are_seeded():
    svd = TruncatedSVD(8, algorithm="randomized", n_iter=1)
    state = np.random.get_state()[1].tolist()  # noqa: NPY002
    a, b = fitted(shared=svd), fitted(shared=svd)
    assert np.random.get_state()[1].tolist() == state  # noqa: NPY002
    assert changed(a, b) == []
    np.testing.assert_array_equal(a.scores(NEW).values, b.scores(NEW).values)


class Denoises(TransformerMixin, BaseEstimator):
    """A network that learns to remove noise, which needs no label; it loads PyTorch when it is first fitted."""

    def fit(self, X, y=None):  # noqa: ARG002
        torch = importlib.import_module("torch")
        rows = torch.from_numpy(X).float() / 16
        encode, decode = torch.nn.Linear(64, 24), torch.nn.Linear(24, 64)
        optimizer = torch.optim.Adam([*encode.parameters(), *decode.parameters()], lr=0.01)
        for _ in range(20):
            restored = decode(torch.relu(encode(rows + 0.1 * torch.randn_like(rows))))
            optimizer.zero_grad()
            ((restored - rows) ** 2).mean().backward()
            optimizer.step()
        self.weights_ = encode.weight.detach().numpy().T
        return self

    def transform(self, X):
        return np.maximum(X @ self.weights_, 0)


def test_a_network_that_learns_without_labels_can_be_shared(monkeypatch):
    """Its random numbers are seeded even if PyTorch is not loaded before the first of the two fits."""
    loaded = pytest.importorskip("torch")
    settings = {"shared": Denoises()}
    base = fitted(**settings)
    monkeypatch.setattr(importlib, "import_module", lambda name: sys.modules.setdefault(name, loaded))
    monkeypatch.delitem(sys.modules, "torch")
    edited = fitted(y=np.append((Y[0] + 1) % 10, Y[1:]), **settings)
    np.testing.assert_array_equal(base.shared_.fitted.weights_, edited.shared_.fitted.weights_)
    assert changed(base, edited) == [base._buckets[0]]


def kinds_of_x():
    draws = np.random.default_rng(0)
    y = draws.integers(0, 2, 60)
    words = [" ".join(draws.choice(["spam", "ham", "mail", "offer"], 5)) + " offer" * (3 * c) for c in y]
    table = pd.DataFrame({"size": y + draws.normal(size=60), "kind": draws.choice(["a", "b"], 60)})
    numbers = np.array(table[["size"]])
    encoded = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["kind"]), remainder="passthrough")
    return y, [
        (words, TfidfVectorizer()),
        (table, encoded),
        (numbers, None),
        (numbers, StandardScaler().set_output(transform="pandas")),
        (sparse.csr_matrix(np.hstack([numbers, -numbers])), TruncatedSVD(1)),
        (np.tile(numbers[:, :, None], (1, 2, 2)), FunctionTransformer(lambda images: images.reshape(len(images), -1))),
    ]


@pytest.mark.parametrize("which", range(6))
def test_every_kind_of_samples_can_be_shared(which):
    y, cases = kinds_of_x()
    x, shared = cases[which]
    settings = {"n_partitions": 5, "classes": [0, 1], "threat": "labels", "shared": shared}
    base = RunoffClassifier(**settings).fit(x, y)
    assert (base.predict(x) == y).mean() > 0.5
    relabelled = y.copy()
    relabelled[0] = 1 - y[0]
    assert changed(base, RunoffClassifier(**settings).fit(x, relabelled)) == [base._buckets[0]]


# -- updates -----------------------------------------------------------------------------------------------------------


def test_update_relabels():
    labels = Y.copy()
    labels[:3] = (labels[:3] + 1) % 10
    updated = fitted().update(add=(X[:3], labels[:3]), remove=(X[:3], Y[:3]))
    again = fitted(y=labels)
    assert changed(updated, again) == []
    assert updated.updated_members_.tolist() == np.unique(again._buckets[:3]).tolist()
    np.testing.assert_array_equal(updated.scores(NEW).values, again.scores(NEW).values)
    assert fitted().update(add=(X[2:3], [4])[:0] or None).updated_members_.tolist() == []


def test_an_update_that_fails_in_the_transformer_changes_nothing():
    """Otherwise the next update would not retrain members whose samples have changed."""

    def doubled(x):
        if failing:
            raise KeyboardInterrupt
        return 2 * x

    failing = False
    classifier = fitted(shared=FunctionTransformer(doubled))
    before = classifier.__dict__.copy()
    failing = True
    with pytest.raises(KeyboardInterrupt):
        classifier.update(remove=(X[:1], Y[:1]), add=(X[:1], (Y[:1] + 1) % 10))
    assert classifier.__dict__ == before


@pytest.mark.parametrize(
    "edit",
    [
        {"add": (NEW[:1], NEW_Y[:1])},
        {"add": (X[:1], Y[:1])},
        {"remove": (X[:1], Y[:1])},
        {"add": (NEW[:1], NEW_Y[:1]), "remove": (X[:1], Y[:1])},
        {"add": (X[:2], Y[:2]), "remove": (X[:1], Y[:1])},
    ],
)
def test_insertions_and_deletions_are_refused(edit):
    base = fitted()
    with pytest.raises(InputError, match="with threat='labels', where samples are fixed"):
        base.update(**edit)
    assert changed(base, BASE) == []


# -- adversaries -------------------------------------------------------------------------------------------------------

POINTS = np.arange(10.0)[:, None]


def tiny(labels):
    """Fit five members on twelve samples, of which two are copies of others."""
    known = {"estimator": KNeighborsClassifier(1), "n_partitions": 5, "classes": range(3), "threat": "labels"}
    return RunoffClassifier(**known, shared=StandardScaler()).fit(
        np.concatenate([POINTS, POINTS[:2]]), np.array(labels)
    )


def test_no_label_change_within_the_radius_changes_a_prediction():
    """Every change of at most `radius` labels, really refitted; the members of each refit hold all three elections."""
    labels = [1, 1, 2, 1, 1, 1, 2, 1, 1, 2, 1, 1]
    elections = ("plurality", "runoff", "maximin")
    victim = tiny(labels)
    by_election = {rule: victim.set_params(election=rule).certify(POINTS) for rule in elections}
    towards = {rule: [found.radius_to(c) for c in range(3)] for rule, found in by_election.items()}
    flipped, refits = {rule: np.zeros(10, int) for rule in elections}, 0
    for certificates in by_election.values():
        assert sorted(set(certificates.radius.tolist())) == [0, 1, 2]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for size in (1, 2):
            for which in itertools.combinations(range(12), size):
                for new in itertools.product((0, 2), repeat=size) if size == 2 else itertools.product(range(3)):
                    edited = dict(enumerate(labels)) | dict(zip(which, new, strict=True))
                    again = tiny(list(edited.values()))
                    refits += 1
                    for rule, certificates in by_election.items():
                        predicted, safe = again.set_params(election=rule).predict(POINTS), certificates.radius >= size
                        np.testing.assert_array_equal(predicted[safe], certificates.prediction[safe])
                        assert not any((predicted[towards[rule][c] >= size] == c).any() for c in range(3))
                        flipped[rule] += predicted != certificates.prediction
    assert refits == 12 * 3 + 66 * 4
    assert all(found.any() for found in flipped.values())  # beyond the radius, some attack succeeds


@pytest.mark.filterwarnings("ignore:.*members learn nothing")
@pytest.mark.parametrize("settings", [{}, {"spread": 2, "n_partitions": 6}, {"election": "plurality"}])
def test_real_relabelling_within_the_radius_changes_nothing(settings):
    """The labels nearest to the input, in the buckets of the cheapest attack, changed to the attack's class."""
    base = fitted(**settings)
    certificates, turned = base.certify(NEW), 0
    for i in range(6):
        attack, radius = certificates.attack(i), int(certificates.radius[i])
        target = base.classes_[attack.prediction]
        near = np.argsort(np.linalg.norm(X - NEW[i], axis=1))
        for n, per_bucket in ((radius, 1), (len(attack.buckets), 80)):
            labels = Y.copy()
            for bucket in attack.buckets[:n]:
                labels[near[base._buckets[near] == bucket][:per_bucket]] = target
            now = fitted(y=labels, **settings).predict(NEW)
            if per_bucket == 1:
                safe = certificates.radius >= n
                np.testing.assert_array_equal(now[safe], certificates.prediction[safe])
            else:
                turned += now[i] != certificates.prediction[i]
    assert turned >= 4  # with all labels of one more bucket, the attack succeeds


# -- words and files ---------------------------------------------------------------------------------------------------


def test_every_radius_says_what_is_not_covered(tmp_path):
    certificates = BASE.certify(NEW)
    assert certificates.unit == BASE.scores(NEW).unit == runoff.certify(BASE.scores(NEW)).unit == "labels"
    limits = "inserted and deleted samples are not covered"
    assert repr(certificates).endswith(f"changed labels; {limits}>")
    for i in range(len(NEW)):
        text = certificates.explain(i)
        radius = certificates.radius[i]
        which = "single changed label" if radius == 1 else f"{radius} changed labels"
        assert (f"Proven: no {which} can change this ({limits})." in text) == (radius > 0)
        assert ("Nothing is proven: one changed label might change this." in text) == (radius == 0)
    rows.write(tmp_path / "rows.csv", certificates, None)
    for table in (certificates.to_frame(to=0), pd.read_csv(tmp_path / "rows.csv")):
        assert table.columns[-2:].tolist() == ["unit", "limits"]
        assert (table["limits"] == limits).all()


def test_what_no_changed_label_can_do_may_be_done_by_inserted_samples():
    """Only members in no bucket lead to such a radius, and an inserted sample might reach them."""
    votes = np.eye(3)[np.array([[0, 0, 0, 1, 2]])]
    certificates = runoff.certify(votes, spread=[[3], [4]], unit="labels")
    assert certificates.radius.tolist() == certificates.radius_to(1).tolist() == [2]
    for text in (certificates.explain(0), certificates.explain(0, to=1)):
        assert "No attack of any size can (inserted and deleted samples are not covered): the members" in text
    script = resources.files("runoff.report").joinpath("assets/election.js").read_text()
    assert "nothing can make this ${name(c)}${Charts.caveat}" in script


def test_saved_classifiers_keep_threat_and_transformer(tmp_path):
    BASE.save(tmp_path / "model")
    loaded = RunoffClassifier.load(tmp_path / "model")
    assert loaded.threat == "labels"
    assert loaded.certify(NEW).unit == "labels"
    np.testing.assert_array_equal(loaded.scores(NEW).values, BASE.scores(NEW).values)
    assert str(loaded.shared) == str(SHARED)
    (tmp_path / "model" / "shared.skops").write_bytes(b"")
    with pytest.raises(StorageError, match=r"shared\.skops"):
        RunoffClassifier.load(tmp_path / "model")


def test_estimates_figures_and_proofs_say_what_is_not_covered(tmp_path, capsys):
    limits = "inserted and deleted samples are not covered"
    estimate = estimates.of_classifier(BASE, X[:300], Y[:300], [0, 2])
    assert f"at 2 changed labels ({limits}); member accuracy" in str(estimate)
    own = estimates.out_of_part(BASE.scores(X[:300]), Y[:300], BASE.buckets_of(BASE.samples_of(X[:300])), [0, 2])
    assert str(own) == str(estimate)
    source = Source.from_classifier(BASE, NEW, NEW_Y)
    assert _election_figure.draw(source).get_suptitle().endswith(limits)
    proofs.write(tmp_path / "proof.json", BASE.certify(NEW), BASE.scores(NEW).values)
    assert json.loads((tmp_path / "proof.json").read_text())["edit"].endswith("samples are not covered.")
    assert check.main([str(tmp_path / "proof.json")]) == 0
    assert f"Radii count changed labels; {limits}." in capsys.readouterr().out


def test_out_of_part_estimates():
    estimate = estimates.of_classifier(BASE, X[:300], Y[:300], [0, 2])
    assert 0.5 < estimate.certified[1] <= estimate.certified[0]
    with pytest.raises(InputError, match="X must hold training samples only"):
        estimates.of_classifier(BASE, NEW, NEW_Y, [0])
