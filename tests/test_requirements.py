"""`runoff certify --require`: a gate must never pass by mistake."""

import json

import numpy as np
import pytest

import runoff
from helpers import run

RNG = np.random.default_rng(0)
SCORES = (RNG.normal(size=(40, 12, 5)) + 2 * RNG.normal(size=(40, 1, 5))).astype(np.float32)
LABELS = (SCORES.mean(axis=1).argmax(axis=1) + (np.arange(40) % 7 == 0)) % 5
CERTIFICATES = runoff.certify(SCORES)
SHARE = 100 * float(runoff.certified_accuracy(CERTIFICATES, LABELS, [2])[0])
WITH_LABELS = ("certify", "scores.npy", "--labels", "y.npy")


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("scores.npy", SCORES)
    np.save("y.npy", LABELS)


def test_exactly_as_much_as_required_is_enough():
    np.save("hundred.npy", np.eye(2)[np.repeat([0, 1], [29, 71])][:, None, :])
    np.save("zeros.npy", np.zeros(100, int))
    assert run("certify", "hundred.npy", "--labels", "zeros.npy", "--require", "0:29%").exit_code == 0
    assert run("certify", "hundred.npy", "--labels", "zeros.npy", "--require", "0:29").exit_code == 0
    assert run("certify", "hundred.npy", "--labels", "zeros.npy", "--require", "0:29.01").exit_code == 3


def test_a_percentage_with_decimals_is_not_rounded_up():
    assert 1.1 * 3000 > 3300  # in floating point
    np.save("many.npy", np.eye(2)[np.repeat([0, 1], [33, 2967])][:, None, :])
    np.save("zeros.npy", np.zeros(3000, int))
    assert run("certify", "many.npy", "--labels", "zeros.npy", "--require", "0:1.1%").exit_code == 0
    short = run("certify", "many.npy", "--labels", "zeros.npy", "--require", "0:1.11%")
    assert short.exit_code == 3
    assert "33 of 3,000 inputs (1.10 %) are certified and correct at 0 edits, required 1.11 % (34)" in short.stderr


def test_requirements_that_are_met_or_not():
    assert 0 < SHARE < 100
    assert run(*WITH_LABELS, "--require", f"2:{SHARE}", "--require", "0:10").exit_code == 0
    short = run(*WITH_LABELS, "--require", "0:10", "--require", f"2:{SHARE + 0.1}")
    assert short.exit_code == 3
    assert f"({SHARE:.2f} %) are certified and correct at 2 edits, required" in short.stderr
    assert "edits" in short.stdout  # the result is still printed
    for order in (("2:100", "2:0"), ("2:0", "2:100")):  # the larger counts
        assert run(*WITH_LABELS, "--require", order[0], "--require", order[1]).exit_code == 3


def test_without_labels_wrong_predictions_do_not_count_silently():
    result = run("certify", "scores.npy", "--require", "0:10%")
    assert result.exit_code == 2
    assert "needs --labels FILE" in result.stderr
    assert "--require-certified" in result.stderr
    assert result.stdout == ""
    alone = 100 * float((CERTIFICATES.radius >= 2).mean())
    assert alone > SHARE
    for labels in ((), ("--labels", "y.npy")):  # labels change nothing here
        assert run("certify", "scores.npy", *labels, "--require-certified", f"2:{alone}%").exit_code == 0
        short = run("certify", "scores.npy", *labels, "--require-certified", f"2:{alone + 1}%")
        assert short.exit_code == 3
        assert "are certified at 2 edits, required" in short.stderr


@pytest.mark.parametrize(("given", "fraction", "percentage"), [("4:0.7", "4:70%", "4:0.7%"), ("4:1", "4:100%", "4:1%")])
def test_what_may_be_a_fraction_is_refused(given, fraction, percentage):
    result = run(*WITH_LABELS, "--require", given)
    assert result.exit_code == 2
    message = " ".join(result.stderr.split())
    assert f"write {fraction} if it is a fraction, or {percentage} if it is a percentage" in message
    assert run(*WITH_LABELS, "--require", percentage).exit_code == 0


@pytest.mark.parametrize(
    "value", ["2:101", "many", "-1:5", "2", "2:", "2:%", "2:nan", "2:inf", "2:7%0", "2:50%%", ":5", "2:-3%"]
)
def test_requirements_that_cannot_be_read(value):
    result = run(*WITH_LABELS, f"--require={value}")
    assert result.exit_code == 2
    assert "EDITS:PERCENT" in result.stderr


def test_every_failure_is_listed_also_in_the_json():
    demands = ("--require", "0:100%", "--require", "1:10%", "--require", "9:99%", "--require-certified", "12:50%")
    result = run(*WITH_LABELS, *demands, "--json")
    assert result.exit_code == 3
    message = result.stderr
    assert message.startswith("Error: 3 of 4 requirements not met: ")
    assert [part in message for part in ("at 0 edits", "at 1 edit,", "at 9 edits", "at 12 edits")] == [
        True, False, True, True
    ]  # fmt: skip
    summary = json.loads(result.stdout)
    assert summary["met"] is False
    assert [part["met"] for part in summary["requirements"]] == [False, True, False, False]
    right = CERTIFICATES.prediction == LABELS
    expected = [
        right,
        right & (CERTIFICATES.radius >= 1),
        right & (CERTIFICATES.radius >= 9),
        CERTIFICATES.radius >= 12,
    ]
    assert [part["inputs"] for part in summary["requirements"]] == [int(which.sum()) for which in expected]
    first = summary["requirements"][0]
    assert (first["edits"], first["percent"], first["correct"], first["of"]) == (0, 100.0, True, 40)
    assert json.loads(run(*WITH_LABELS, "--require", "1:10%", "--json").stdout)["met"] is True
    nothing = json.loads(run(*WITH_LABELS, "--json").stdout)
    assert (nothing["requirements"], nothing["met"]) == ([], None)
