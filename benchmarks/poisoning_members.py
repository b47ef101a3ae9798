"""Poisoning of scikit-learn ensembles: poisoned twins of every member, end-to-end refits, and spreads."""

import warnings

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.linear_model import RidgeClassifier
from sklearn.tree import DecisionTreeClassifier

import runoff
from benchmarks.poisoning_edits import Attacker, joined
from benchmarks.poisoning_swaps import smallest, winner
from runoff import RunoffClassifier

ELECTIONS = ("runoff", "plurality")
RIDGE = RidgeClassifier(alpha=100)
AIMED = {"the input inserted once per bucket": 1, "the input inserted five times per bucket": 5}
SETTINGS = {
    "digits": [
        ("default settings, k = 50", {}),
        ("ridge, k = 20", {"estimator": RIDGE, "n_partitions": 20}),
        ("ridge, k = 20, d = 4", {"estimator": RIDGE, "n_partitions": 20, "spread": 4}),
    ],
    "cancer": [
        ("default settings, k = 50", {}),
        ("trees, k = 25", {"estimator": DecisionTreeClassifier(max_depth=3), "n_partitions": 25}),
        ("default members, k = 10, d = 3", {"n_partitions": 10, "spread": 3}),
    ],
}


def data(name):
    """Return training samples, labels and inputs: every fifth sample of digits, every third of breast cancer."""
    X, y = {"digits": load_digits, "cancer": load_breast_cancer}[name](return_X_y=True)
    test = np.arange(len(y)) % {"digits": 5, "cancer": 3}[name] == 0
    return X[~test], y[~test], X[test]


class Victim:
    """A fitted classifier with its certificates, which can be refitted on edited data."""

    def __init__(self, X, y, inputs, settings):
        self.X, self.y, self.inputs = X, y, inputs
        self.classes = np.unique(y)
        self.settings = settings | {"classes": self.classes}
        self.n_fits = self.n_trained = 0
        self.clean = self.fit(X, y)
        scores = self.clean.scores(inputs)
        self.ballots = runoff.rank(scores.values)
        self.certificates = {election: runoff.certify(scores, election=election) for election in ELECTIONS}
        self.attacker = Attacker(self.clean.partition_, X, y, self.classes, np.random.default_rng(0))
        attacks = [self.certificates["runoff"].attack(i) for i in range(len(inputs))]
        other = (self.certificates["runoff"].prediction == 0).astype(int)  # any other class, if no attack exists
        self.targets = [other[i] if a is None else int(a.prediction) for i, a in enumerate(attacks)]

    def fit(self, X, y):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # poisoned samples may be ones that an estimator cannot be fitted on
            fitted = RunoffClassifier(**self.settings).fit(X, y)
        self.n_fits += 1
        self.n_trained += len(fitted.members_)
        return fitted

    def twins(self, edits, which=slice(None)):
        """Return the ballots (inputs, members, classes) of members retrained on edited data."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return runoff.rank(self.fit(*edits.applied(self.X, self.y)).scores(self.inputs[which]).values)


class Options:
    """The choices of an attacker for a bucket: versions of the data, with the twins trained on each."""

    def __init__(self, victim, versions, ballots):
        self.versions, self.ballots = versions, ballots  # (inputs, members, versions, classes)
        n = victim.ballots.shape[1]
        self.counts = [np.bincount(np.concatenate(edits.buckets), minlength=n) for edits in versions]

    @classmethod
    def same_for_all(cls, victim, versions):
        return cls(victim, versions, np.stack([victim.twins(edits) for edits in versions], axis=2))

    def edits_of(self, members, twins):
        """Return the edits that replace these members by these twins."""
        return joined([self.versions[t].only([m]) for m, t in zip(members, twins, strict=True)])


def whole_buckets(victim):
    """Return the options of relabelling a whole bucket: to the next class, or to one class."""
    attacker = victim.attacker
    return Options.same_for_all(victim, [attacker.next_class(), *map(attacker.one_label, victim.classes)])


def one_edit(victim, limit=None):
    """Return the options of one edit: any deletion, any relabelling, or an extreme sample with any label."""
    attacker, n_classes = victim.attacker, len(victim.classes)
    versions = [attacker.extreme(label) for label in victim.classes]
    for n in range(limit or int(np.bincount(attacker.sample_buckets).max())):
        versions.append(attacker.delete_nth(n))
        versions += [attacker.relabel_nth(n, shift) for shift in range(1, n_classes)]
    return Options.same_for_all(victim, versions)


def aimed(victim, count, i):
    """Return edits that insert an input `count` times per bucket, with the label to be elected, and their twins."""
    attacker = victim.attacker
    edits = attacker.insert(victim.inputs[i], victim.classes[victim.targets[i]], attacker.all, count)
    return edits, victim.twins(edits, slice(i, i + 1))[0]


def twins(name, label, victim, findings, refits, n_replays=25, limit=None, every=1):
    """Find, for every input, the smallest mixture of clean and poisoned members that changes its prediction.

    Every `every`-th input also gets twins that are trained for it alone.
    """
    n_inputs = len(victim.inputs)
    general = {"whole buckets relabelled": whole_buckets(victim), "one edit per bucket": one_edit(victim, limit)}
    replayed = {attack: [] for attack in (*general, *AIMED)}
    for i in range(n_inputs):
        sets = {attack: (options, options.ballots[i]) for attack, options in general.items()}
        for attack, count in AIMED.items() if i % every == 0 else ():
            edits, ballots = aimed(victim, count, i)
            sets[attack] = (Options(victim, [edits], None), ballots[:, None])
        for attack, (options, ballots) in sets.items():
            for election, certificates in victim.certificates.items():
                swap = smallest(victim.ballots[i], ballots, election)
                edits = None
                if swap is not None:
                    edits = sum(int(options.counts[t][m]) for m, t in zip(swap.members, swap.twins, strict=True))
                    assert winner(swap.apply(victim.ballots[i], ballots), election) != certificates.prediction[i]
                    findings.unproven += not swap.exact
                findings.add((name, label, election, attack), certificates.radius[i], swap and len(swap), edits)
                if swap is not None and election == "runoff" and i % max(1, n_inputs // n_replays) == 0:
                    replayed[attack].append((i, swap, ballots, options))
    for attack, cases in replayed.items():
        replay(label, attack, victim, cases, refits)


def replay(label, attack, victim, cases, refits):
    """Repeat attacks end to end: edit the data, refit everything, and compare."""
    certificates = victim.certificates["runoff"]
    before, compared, changed, flipped = (victim.n_fits, victim.n_trained), 0, 0, 0
    for i, swap, ballots, options in cases:
        edited = victim.twins(options.edits_of(swap.members, swap.twins), slice(i, i + 1))[0]
        # An edit reaches no member outside its bucket, so the refit has the ballots of the mixture.
        assert np.array_equal(edited, swap.apply(victim.ballots[i], ballots))
        flipped += winner(edited, "runoff") != certificates.prediction[i]
        radius = int(certificates.radius[i])
        if radius:
            within = victim.twins(options.edits_of(swap.members[:radius], swap.twins[:radius]))
            safe = np.flatnonzero(certificates.radius >= min(radius, len(swap)))
            compared += len(safe)
            changed += int((runoff.certify(within[safe]).prediction != certificates.prediction[safe]).sum())
    fits, trained = victim.n_fits - before[0], victim.n_trained - before[1]
    refits.add(label, attack, fits, trained, compared, changed, f"{flipped} of {len(cases)} flipped")


def at_random(label, victim, refits, n_rounds):
    """Apply as many random edits as the radius allows, in attacked and in random buckets, by `fit` and `update`."""
    rng, attacker = np.random.default_rng(1), victim.attacker
    certificates = runoff.certify(victim.clean.scores(victim.inputs))
    before, compared, changed = (victim.n_fits, victim.n_trained), 0, 0
    for round_ in range(n_rounds):
        i = int(rng.integers(len(victim.inputs)))
        radius, attack = int(certificates.radius[i]), certificates.attack(i)
        if not radius or attack is None:
            continue
        buckets = attack.buckets[:radius] if round_ % 2 else rng.permutation(attacker.all)[:radius]
        edits = attacker.at_random(radius, victim.inputs[i], victim.classes[victim.targets[i]], buckets)
        edited = victim.fit(*edits.applied(victim.X, victim.y)).predict(victim.inputs)
        safe = certificates.radius >= len(edits)
        compared += int(safe.sum())
        changed += int((edited[safe] != victim.classes[certificates.prediction[safe]]).sum())
        if round_ % 4 == 0:
            assert np.array_equal(updated(victim, edits).predict(victim.inputs), edited)
    refits.add(
        label, "radius edits of all kinds", victim.n_fits - before[0], victim.n_trained - before[1], compared, changed
    )


def updated(victim, edits):
    """Return the clean classifier after `update` with these edits; a relabelled sample is removed and added."""
    gone = np.concatenate([edits.deleted, edits.relabelled])
    new = np.concatenate([victim.X[edits.relabelled], edits.inserted])
    labels = np.concatenate([edits.labels, edits.inserted_labels])
    fitted = victim.fit(victim.X, victim.y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted.update(
            add=(new, labels) if len(labels) else None, remove=(victim.X[gone], victim.y[gone]) if len(gone) else None
        )
    victim.n_trained += len(fitted.updated_members_)
    return fitted


# -- buckets that reach several members ------------------------------------------------------------------------------


def spread(name, label, victim, findings, refits, n_inputs):
    """Refit with more and more poisoned buckets until a prediction changes, since members share buckets."""
    rng = np.random.default_rng(2)
    chosen = rng.permutation(len(victim.inputs))[:n_inputs]
    attacker, certificates = victim.attacker, victim.certificates["runoff"]
    for attack, count in {"whole buckets relabelled": None, **AIMED, "one extreme sample per bucket": 0}.items():
        before = victim.n_fits, victim.n_trained
        tally = {"compared": 0, "changed": 0}
        for i in chosen:
            target = victim.classes[victim.targets[i]]
            if count is None:
                edits = attacker.one_label(target)
            elif not count:
                edits = attacker.extreme(target)
            else:
                edits = attacker.insert(victim.inputs[i], target, attacker.all, count)
            attempts = [
                fewest(victim, i, certificates, edits, order, tally) for order in orders(victim, i, certificates)
            ]
            size, order = min((a for a in attempts if a is not None), default=(None, ()), key=lambda a: a[0])
            total = None if size is None else len(edits.only(order[:size]))
            findings.add((name, label, "runoff", attack), certificates.radius[i], size, total)
        refits.add(
            label, attack, victim.n_fits - before[0], victim.n_trained - before[1], tally["compared"], tally["changed"]
        )


def orders(victim, i, certificates):
    """Yield two orders of buckets for an attacker: the smallest attack first, and one member after another."""
    spread, ballots, w = victim.clean.partition_.spread, victim.ballots[i], certificates.prediction[i]
    voters = ballots.argmax(1) == w
    reached = np.argsort(-voters[spread].sum(1), kind="stable")
    attack = certificates.attack(int(i))
    first = [] if attack is None else attack.buckets.tolist()
    yield list(dict.fromkeys([*first, *reached.tolist()]))
    # A member is under full control once all its buckets are poisoned.
    weakest = np.argsort(np.where(voters, ballots[:, victim.targets[i]].astype(int), -1), kind="stable")[::-1]
    per_member = [np.flatnonzero((spread == m).any(1)).tolist() for m in weakest]
    yield list(dict.fromkeys([b for buckets in per_member for b in buckets]))


def fewest(victim, i, certificates, edits, order, tally):
    """Return the fewest buckets of an order that change the prediction, by bisection, or None if all do not."""
    w, radius, name = certificates.prediction[i], int(certificates.radius[i]), certificates.election.name

    def flips(size):
        if size > radius:
            return winner(victim.twins(edits.only(order[:size]), slice(i, i + 1))[0], name) != w
        after = victim.twins(edits.only(order[:size]))
        safe = np.flatnonzero(certificates.radius >= size)
        tally["compared"] += len(safe)
        tally["changed"] += sum(winner(after[j], name) != certificates.prediction[j] for j in safe)
        return winner(after[i], name) != w

    if radius and flips(radius):
        return radius, order
    low, step = radius, 1
    while True:
        size = min(low + step, len(order))
        if flips(size):
            break
        if size == len(order):
            return None
        low, step = size, 2 * step
    while size - low > 1:
        middle = (low + size) // 2
        low, size = (low, middle) if flips(middle) else (middle, size)
    return size, order


def run(name, findings, refits, quick=False, only=""):
    X, y, inputs = data(name)
    if quick:
        inputs = inputs[:24]
    for label, settings in SETTINGS[name]:
        if only not in label:
            continue
        victim = Victim(X, y, inputs, settings)
        print(f"{name}, {label}: {victim.clean.balance()}", flush=True)
        if settings.get("spread", 1) > 1:
            spread(name, label, victim, findings, refits, 3 if quick else 30)
        else:
            twins(name, label, victim, findings, refits, *((3, 1, 8) if quick else (25, None, 3)))
        at_random(label, victim, refits, 4 if quick else 40)
        print(f"  {victim.n_fits:,} fits, {victim.n_trained:,} members trained", flush=True)
