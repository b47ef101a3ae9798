"""Examples that the documentation does not run: labels.py, clinics.py, and spam.py on a small corpus made up here."""

import re
from pathlib import Path

import numpy as np
import pytest

import runoff
from runoff import datasets
from runoff.datasets import TextDataset

EXAMPLES = Path(__file__).parent.parent / "examples"
SOURCE = (EXAMPLES / "spam.py").read_text()
SMALLER = {  # settings for hundreds of mails instead of thousands
    "(25, 50, 70, 100)": "(10, 20)",
    "2**14": "2**8",
    "10, random_state": "2, random_state",
    "20, replace=False": "3, replace=False",
    "(1, 2, 5, 20, 30, 100, 300)": "(1, 4)",
    "n_jobs=2": "n_jobs=1",
    '"budgets": 10': '"budgets": 4',
    "best(10)": "best(4)",
}
HAM = ["thanks", "patch", "kernel", "build", "install", "script", "bug", "I think", "but"]
SPAM = ["click here", "free", "money", "save", "now", "your", "mortgage", "offer", "risk"]


def corpus(n_train=300, n_test=120):
    draws = np.random.default_rng(0)
    y = draws.integers(0, 2, n_train + n_test)
    domains = np.array([f"{'bulk' if spam else 'site'}{draws.integers(30)}.example" for spam in y])
    mails = []
    for spam, domain in zip(y, domains, strict=True):
        words = [*(SPAM if spam else HAM), *HAM[:4]]
        subject, body = (" ".join(draws.choice(words, n)) for n in (3, 12))
        mails.append(f"From: a@{domain}\nSubject: {subject}{'!' * 2 * spam}\n\n{body}")
    names = np.array([f"{'spam' if spam else 'easy-ham'}-2/{i:05d}" for i, spam in enumerate(y)])
    parts = slice(0, n_train), slice(n_train, None)
    (x, x_test), (y, y_test), (g, g_test), (n, n_test) = ([a[p] for p in parts] for a in (mails, y, domains, names))
    days = np.array(["2002-09-01", "NaT", "2002-07-01"], "datetime64[D]")
    columns = [{"name": names, "date": np.resize(days, len(names))} for names in (n, n_test)]
    return TextDataset("small", x, y, x_test, y_test, ("ham", "spam"), g, g_test, *columns)


@pytest.mark.slow
def test_changed_labels_are_withstood_where_as_many_edited_samples_are_not():
    found = {"__name__": "__main__"}
    exec(compile((EXAMPLES / "labels.py").read_text(), "examples/labels.py", "exec"), found)  # noqa: S102
    for name, (by_samples, by_labels) in found["certificates"].items():
        _, y, _, _ = found["cases"][name]
        truth = y[np.arange(len(y)) % 4 == 0]
        for goal in (8, 16):
            assert (by_samples[goal].unit, by_labels[goal].unit) == ("samples", "labels")
            for budget in (0, 1, 2, 4, 8, goal):
                shares = [runoff.certified_accuracy(c[goal], truth, [budget])[0] for c in (by_samples, by_labels)]
                assert shares[0] < shares[1]


def test_corrupt_clinics_within_the_radius_change_nothing(capsys):
    code = (EXAMPLES / "clinics.py").read_text()
    for given, smaller in (("(10, 20, 30, 40)", "(20, 30)"), ("[:20]", "[:4]"), ("(1, 2, 3, 5, 10)", "(1, 10)")):
        assert given in code, given
        code = code.replace(given, smaller)
    found = {"__name__": "__main__"}
    exec(compile(code, "examples/clinics.py", "exec"), found)  # noqa: S102
    assert [c.unit for c in found["certificates"].values()] == ["sources", "samples", "labels"]
    rows = re.findall(r"^ +(\d+) +(\d+) +(\d+) +(\d+)$", capsys.readouterr().out, re.MULTILINE)
    assert [int(row[0]) for row in rows] == [1, 10]
    for _, undefended, ours, proven in rows:
        assert int(ours) <= int(proven)
        assert int(ours) < int(undefended)


def test_the_example_runs(monkeypatch, capsys):
    monkeypatch.setattr(datasets, "load", lambda name: corpus() if name == "spamassassin" else None)
    code = SOURCE
    for given, smaller in SMALLER.items():
        assert given in code, given
        code = code.replace(given, smaller)
    found = {"__name__": "__main__"}
    exec(compile(code, "examples/spam.py", "exec"), found)  # noqa: S102
    printed = capsys.readouterr().out
    assert printed.startswith("300 training mails of ")
    for threat in ("sources", "samples", "labels"):
        certificates = found["certificates"][threat]
        assert certificates.unit == threat
        accuracy = found["by_class"](certificates, [0, 1, 20])
        assert 80 < accuracy[0] >= accuracy[1] >= accuracy[2]
    # Nothing gets through that is proven not to, however many mails a domain sends.
    rows = re.findall(r"^ +(\d+) +(\d+) +(\d+) +(\d+) +(\d+) +(\d+)$", printed, re.MULTILINE)
    assert [int(row[0]) for row in rows] == [1, 4]
    for _, _, _, one, many, proven in rows:
        assert int(one) <= int(proven) >= int(many)
    np.testing.assert_array_equal(  # after all poison is removed, the filter is the one that was certified
        found["certified"].certify(found["signs_test"]).radius, found["certificates"]["sources"].radius
    )
