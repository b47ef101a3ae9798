"""Poisoning of networks on CIFAR-10: ensembles of twins are trained on a GPU; any machine can analyse their ballots.

Each stage fits the whole ensemble. The edits of a bucket reach one member only, so one fit poisons every member once:

clean    the ensemble to be attacked
next     every label of every bucket changed to the next class
once     one image inserted into each bucket: an input, with the label that the smallest attack on it elects. Each
         input gets some more members than that attack needs, until no member is left
many     TARGETS inputs, each inserted once into every bucket
update   the clean ensemble after `update` with the labels of ten buckets changed to the next class: the other members
         must not change, and the ten must have the same bits as those of `next`
"""

import time
from pathlib import Path

import numpy as np

from benchmarks.poisoning_edits import Attacker
from benchmarks.poisoning_swaps import smallest, winner

N_CLASSES, TARGETS, CANDIDATES, UPDATED = 10, 50, 150, 10
STAGES = ("clean", "next", "once", "many", "update")


def ranked(scores):
    """Return ballots: points from the number of classes - 1 down to 0. A tie ranks the lower class index first."""
    order = np.argsort(-scores, axis=-1, kind="stable")
    ballots = np.empty(scores.shape, np.uint8)
    points = np.arange(scores.shape[-1] - 1, -1, -1, dtype=np.uint8)
    np.put_along_axis(ballots, order, np.broadcast_to(points, order.shape), axis=-1)
    return ballots


def constants(n_members):
    """Return the twins of members whose samples all have one label: they vote by class shares, whatever the input."""
    return np.broadcast_to(ranked(np.eye(N_CLASSES)), (n_members, N_CLASSES, N_CLASSES))


class Bench:
    """One CIFAR-10 ensemble with the ballots of its stages."""

    def __init__(self, data, k, network, recipe, folder):
        self.X, self.y = data["x_train"], data["y_train"].astype(np.int64)
        self.inputs, self.k, self.settings = data["x_test"], k, (network, recipe)
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.rng = self.fitted = None

    def file(self, stage):
        return self.folder / f"k{self.k}-{stage}.npy"

    def load(self, stage):
        return np.load(self.file(stage)) if self.file(stage).exists() else None

    def classifier(self):
        from runoff.torch import TorchClassifier

        network, recipe = self.settings
        return TorchClassifier(
            network, recipe, n_partitions=self.k, classes=range(N_CLASSES), hash="pixel-sum", progress=False
        )

    def attacker(self):
        """Return an attacker with the partition of every fit, which follows from the settings."""
        from runoff.hashing import derived_key
        from runoff.partition import Partition

        partition = Partition.make(self.k, 1, 0, derived_key(0), "pixel-sum")
        attacker = ImageAttacker(partition, self.X, self.y, range(N_CLASSES), self.rng)
        attacker.inputs = self.inputs
        return attacker

    def fit(self, edits=None):
        X, y = (self.X, self.y) if edits is None else edits.applied(self.X, self.y)
        return self.classifier().fit(X, y, score=self.inputs)

    def ballots_of(self, fitted, inputs=None):
        scores = fitted.scores(self.inputs).values
        return ranked(scores if inputs is None else scores[inputs])

    def train(self, stages):
        for stage in stages:
            start = time.perf_counter()
            self.rng = np.random.default_rng(0)  # for each stage, so that stages can be trained separately
            getattr(self, stage)()
            print(f"k = {self.k}, {stage}: {time.perf_counter() - start:.1f} s", flush=True)

    # -- stages --------------------------------------------------------------------------------------------------------

    def clean(self):
        fitted = self.fit()
        print(f"  {fitted.balance()}")
        np.save(self.file("clean"), self.ballots_of(fitted))
        self.fitted = fitted

    def next(self):
        np.save(self.file("next"), self.ballots_of(self.fit(self.attacker().next_class())))

    def once(self):
        clean, attacker = self.load("clean"), self.attacker()
        aims = self.aims(clean, self.rng.permutation(len(clean))[:CANDIDATES])
        edits = attacker.insert_each([(i, target, m) for m, (i, target) in aims.items()])
        fitted, chosen = self.fit(edits), sorted({i for i, _ in aims.values()})
        np.save(self.file("once-aims"), np.array([(m, i, target) for m, (i, target) in sorted(aims.items())]))
        np.save(self.file("once-inputs"), np.array(chosen))
        np.save(self.file("once"), self.ballots_of(fitted, chosen))

    def many(self):
        clean, attacker = self.load("clean"), self.attacker()
        chosen = np.sort(self.rng.permutation(len(clean))[:TARGETS])
        targets = [self.target(clean[i])[0] for i in chosen]
        wanted = [(i, t, m) for i, t in zip(chosen, targets, strict=True) for m in range(self.k)]
        np.save(self.file("many-inputs"), chosen)
        np.save(self.file("many"), self.ballots_of(self.fit(attacker.insert_each(wanted)), chosen))

    def update(self):
        attacker, fitted = self.attacker(), self.fitted or self.fit()
        changed = np.sort(self.rng.permutation(self.k)[:UPDATED])
        edits = attacker.next_class().only(changed)
        rows = edits.relabelled
        fitted.update(add=(self.X[rows], edits.labels), remove=(self.X[rows], self.y[rows]))
        np.save(self.file("update-members"), changed)
        np.save(self.file("update"), self.ballots_of(fitted))

    def target(self, ballots):
        """Return the class that the smallest attack on an input elects, and that attack."""
        attack = smallest(ballots, constants(self.k), "runoff")
        return winner(attack.apply(ballots, constants(self.k)), "runoff"), attack

    def aims(self, clean, candidates):
        """Return the input that each member is poisoned for, {member: (input, label)}, inputs of small radius first."""
        attacks = [(len(a), i, t, a) for i in candidates for t, a in [self.target(clean[i])]]
        attacks.sort(key=lambda attack: attack[:2])
        # Equally many inputs of each attack size, from the smallest up, until no member is left.
        turns = sorted(((sum(g[0] == f[0] for g in attacks[:n]), f[0], n) for n, f in enumerate(attacks)))
        turns = [n for turn, _, n in turns if turn < max(2, self.k // 60)]
        aims = {}
        for n in sorted(turns):
            size, i, target, attack = attacks[n]
            votes = clean[i].argmax(1)
            w = winner(clean[i], "runoff")
            voters = self.rng.permutation(np.flatnonzero((votes == w) & (clean[i][:, target] < clean[i][:, w])))
            wanted = list(dict.fromkeys([*attack.members.tolist(), *voters.tolist()]))
            free = [m for m in wanted if m not in aims][: size + 1 + size // 3]
            if len(free) >= size:
                aims |= {m: (int(i), int(target)) for m in free}
        return aims

    # -- analysis ------------------------------------------------------------------------------------------------------

    def analyse(self, findings, refits, every=1):
        import runoff

        clean, label = self.load("clean"), f"networks, k = {self.k}"
        certificates = {e: runoff.certify(clean, election=e) for e in ("runoff", "plurality")}
        buckets = self.attacker().sample_buckets
        by_label = np.array([np.bincount(self.y[buckets == b], minlength=N_CLASSES) for b in range(self.k)])
        sizes = by_label.sum(1, keepdims=True)
        print(f"{label}: {sizes.min()} to {sizes.max()} samples per bucket, {len(clean)} inputs", flush=True)
        self.check_constants()
        after, one = self.load("next"), np.ones((self.k, 1), int)
        inputs = range(0, len(clean), every)
        sets = {"whole buckets relabelled": (sizes - by_label, lambda _: constants(self.k))}
        if after is not None:
            both = np.concatenate([sizes - by_label, sizes], axis=1)
            sets = {
                "whole buckets relabelled": (both, lambda i: np.concatenate([constants(self.k), after[i][:, None]], 1)),
                "whole buckets, to the next class": (sizes, lambda i: after[i][:, None]),
            }
        for attack, (costs, twins) in sets.items():
            for i in inputs:
                self.attack(findings, label, attack, i, clean[i], twins(i), costs, certificates)
        if (many := self.load("many")) is not None:
            for i, twins in zip(self.load("many-inputs"), many, strict=True):
                attack = f"{len(many)} inputs, each inserted once per bucket"
                self.attack(findings, label, attack, i, clean[i], twins[:, None], len(many) * one, certificates)
        if (once := self.load("once")) is not None:
            aims, chosen = self.load("once-aims"), self.load("once-inputs")
            others = np.setdiff1d(np.arange(self.k), aims[:, 0])
            assert np.array_equal(once[:, others], clean[chosen][:, others])  # nothing was inserted there
            n_optimal = 0
            for i, ballots in zip(chosen, once, strict=True):
                members, attack = aims[aims[:, 1] == i, 0], "the input inserted once per bucket, into some buckets"
                twins, takeover = clean[i][:, None].copy(), np.repeat(clean[i][:, None], N_CLASSES, axis=1)
                twins[members, 0], takeover[members] = ballots[members], constants(self.k)[members]
                self.attack(findings, label, attack, i, clean[i], twins, one, certificates)
                # Members are divided among inputs, so not every input has those of its smallest attack.
                swap, best = (smallest(clean[i], options, "runoff") for options in (twins, takeover))
                n_optimal += (swap and len(swap)) == (best and len(best))
            obeyed = [once[np.searchsorted(chosen, i), m].argmax() == target for m, i, target in aims]
            print(
                f"  one insertion: {sum(obeyed)} of {len(obeyed)} members then rank the new label first; {n_optimal} "
                f"of {len(once)} inputs need as few of their buckets as with full control of these",
                flush=True,
            )
        if (updated := self.load("update")) is not None and after is not None:
            changed = self.load("update-members")
            expected = clean.copy()
            expected[:, changed] = after[:, changed]
            assert np.array_equal(updated, expected)
            safe = certificates["runoff"].radius >= len(changed)
            now = runoff.certify(updated).prediction
            broken = int((now != certificates["runoff"].prediction)[safe].sum())
            flipped = f"{int((now != certificates['runoff'].prediction)[~safe].sum())} of {int((~safe).sum())} flipped"
            what = f"{len(changed)} buckets to the next class, by update"
            refits.add(label, what, 1, len(changed), int(safe.sum()), broken, flipped)

    def check_constants(self):
        """Check the ballots of `constants` against fits on one label alone."""
        for label in range(N_CLASSES):
            fitted = self.classifier().fit(self.X, np.full(len(self.y), label))
            assert np.array_equal(ranked(fitted.scores(self.inputs[:1]).values[0]), constants(self.k)[:, label])

    def attack(self, findings, label, attack, i, ballots, twins, costs, certificates):
        for election, certified in certificates.items():
            swap, edits = smallest(ballots, twins, election), None
            if swap is not None:
                edits = int(costs[swap.members, swap.twins].sum())
                assert winner(swap.apply(ballots, twins), election) != certified.prediction[i]
                findings.unproven += not swap.exact
            findings.add(("cifar10", label, election, attack), certified.radius[i], swap and len(swap), edits)


class ImageAttacker(Attacker):
    """An attacker that inserts images which differ from an input by at most 2 of 255 in any pixel."""

    def insert_each(self, wanted):
        """Insert one sample for each (input, label, bucket); inputs are rows of `self.inputs`."""
        buckets = {}
        for i, label, bucket in wanted:
            buckets.setdefault((int(i), int(label)), []).append(int(bucket))
        rows, labels, expected = [], [], []
        for (i, label), missing in buckets.items():
            while missing:
                noise = self.rng.integers(-2, 3, (4 * len(self.all), *self.inputs[i].shape), dtype=np.int8)
                candidates = np.clip(self.inputs[i] + noise.astype(np.int16), 0, 255).astype(np.uint8)
                hashed = self.buckets(candidates)
                hits = {bucket: np.flatnonzero(hashed == bucket) for bucket in missing}
                rows += [candidates[hit[0]] for hit in hits.values() if hit.size]
                expected += [bucket for bucket, hit in hits.items() if hit.size]
                missing = [bucket for bucket, hit in hits.items() if not hit.size]
            labels += [label] * (len(rows) - len(labels))
        edits = self.edits(inserted=np.stack(rows), inserted_labels=labels)
        assert np.array_equal(edits.buckets[2], expected)
        return edits


def run(given, findings, refits):
    with np.load(given.data) as file:
        data = dict(file)
    bench = Bench(data, given.k, given.network, given.recipe, given.ballots)
    bench.train([stage for stage in given.stages or STAGES if not bench.file(stage).exists()])
    if not given.train_only:
        bench.analyse(findings, refits, given.every)
