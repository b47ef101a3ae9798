"""examples/spam.py on a small corpus that is made up here; scripts/gallery.py runs it on the real mails."""

import re
from pathlib import Path

import numpy as np

from runoff import datasets
from runoff.datasets import TextDataset

SOURCE = (Path(__file__).parent.parent / "examples" / "spam.py").read_text()
SMALLER = {  # settings for hundreds of mails instead of thousands
    "(25, 50, 70, 100)": "(10, 20)",
    "2**14": "2**8",
    "10, random_state": "2, random_state",
    "20, replace=False": "3, replace=False",
    "(1, 2, 5, 20, 30)": "(1, 4)",
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
    return TextDataset("small", x, y, x_test, y_test, ("ham", "spam"), g, g_test, {"name": n}, {"name": n_test})


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
    rows = re.findall(r"^ +(\d+) +(\d+) +(\d+) +(\d+) +(\d+)$", printed, re.MULTILINE)
    assert [int(row[0]) for row in rows] == [1, 4]
    for _, _, one, proven, many in rows:
        assert int(one) <= int(proven) >= int(many)
    np.testing.assert_array_equal(  # after all poison is removed, the filter is the one that was certified
        found["certified"].certify(found["signs_test"]).radius, found["certificates"]["sources"].radius
    )
