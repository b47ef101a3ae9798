"""Members of scikit-learn and of common packages are saved and loaded without naming any type."""

import json
import warnings

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_iris
from sklearn.ensemble import (
    AdaBoostClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    VotingClassifier,
)
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OutputCodeClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.tree import DecisionTreeClassifier

from runoff import RunoffClassifier
from runoff.errors import MissingExtraError, StorageError
from runoff.heads import RidgeHead
from runoff.saving import trusted

X, Y = load_iris(return_X_y=True)


def saved_and_loaded(estimator, path):
    classifier = RunoffClassifier(estimator, n_partitions=2, classes=range(3)).fit(X, Y)
    assert not any(member.refused for member in classifier.members_)
    classifier.save(path)
    np.testing.assert_array_equal(RunoffClassifier.load(path).scores(X), classifier.scores(X))
    return json.loads((path / "manifest.json").read_text())["versions"]


@pytest.mark.parametrize(
    "estimator",
    [
        HistGradientBoostingClassifier(max_iter=3),
        RandomForestClassifier(3),
        AdaBoostClassifier(n_estimators=3),
        DecisionTreeClassifier(),
        KNeighborsClassifier(algorithm="kd_tree"),
        KNeighborsClassifier(algorithm="ball_tree", metric="manhattan"),
        MLPClassifier((4,), max_iter=5),
        CalibratedClassifierCV(LogisticRegression(), cv=2),
        GaussianProcessClassifier(),
        RidgeHead(),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")
def test_models_of_scikit_learn(estimator, tmp_path):
    assert set(saved_and_loaded(estimator, tmp_path / "model")) >= {"runoff", "numpy", "scikit-learn"}


def test_types_that_only_certain_samples_cause(tmp_path):
    """One inserted sample can decide whether a member has them, so the loaded classifier must not stop there."""
    estimator = OutputCodeClassifier(DecisionTreeClassifier(max_depth=2))
    classifier = RunoffClassifier(estimator, n_partitions=12, classes=range(3)).fit(X, Y)
    kinds = [{type(e).__name__ for e in member.fitted[0].estimators_} for member in classifier.members_]
    assert {"_ConstantPredictor" in names for names in kinds} == {True, False}
    classifier.save(tmp_path / "model")
    np.testing.assert_array_equal(RunoffClassifier.load(tmp_path / "model").scores(X), classifier.scores(X))
    voting = VotingClassifier([("tree", DecisionTreeClassifier(max_depth=2)), ("head", RidgeHead())])
    saved_and_loaded(voting, tmp_path / "voting")


def test_models_of_lightgbm(tmp_path):
    lightgbm = pytest.importorskip("lightgbm", exc_type=(ImportError, OSError))
    estimator = lightgbm.LGBMClassifier(n_estimators=3, verbose=-1)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="lightgbm|sklearn")
        assert saved_and_loaded(estimator, tmp_path / "model")["lightgbm"] == lightgbm.__version__


def test_models_of_xgboost(tmp_path):
    xgboost = pytest.importorskip("xgboost", exc_type=(ImportError, OSError))
    estimator = xgboost.XGBClassifier(n_estimators=3)
    assert saved_and_loaded(estimator, tmp_path / "model")["xgboost"] == xgboost.__version__


def test_models_of_catboost(tmp_path):
    catboost = pytest.importorskip("catboost", exc_type=(ImportError, OSError))
    estimator = catboost.CatBoostClassifier(iterations=3, verbose=0, allow_writing_files=False)
    assert saved_and_loaded(estimator, tmp_path / "model")["catboost"] == catboost.__version__


def test_models_of_imbalanced_learn(tmp_path):
    imblearn = pytest.importorskip("imblearn")
    from imblearn.ensemble import BalancedRandomForestClassifier
    from imblearn.over_sampling import SMOTE
    from imblearn.pipeline import make_pipeline

    for i, estimator in enumerate(
        (BalancedRandomForestClassifier(3), make_pipeline(SMOTE(k_neighbors=2), LogisticRegression(max_iter=500)))
    ):
        assert saved_and_loaded(estimator, tmp_path / f"{i}")["imbalanced-learn"] == imblearn.__version__


class Mine(LogisticRegression):
    pass


def test_types_of_your_own_are_refused_when_the_model_is_loaded(tmp_path):
    RunoffClassifier(Mine(max_iter=500), n_partitions=2, classes=range(3)).fit(X, Y).save(tmp_path / "model")
    with pytest.raises(
        StorageError, match=r"not on the list of trusted types, .*test_saving_packages.Mine: if they are yours"
    ):
        RunoffClassifier.load(tmp_path / "model")
    name = f"{Mine.__module__}.Mine"
    assert RunoffClassifier.load(tmp_path / "model", trusted=(name,)).predict(X).shape == (150,)


def test_a_package_that_is_missing_is_named(tmp_path, monkeypatch):
    test_models_of_lightgbm(tmp_path)
    monkeypatch.setattr(trusted, "version_of", lambda _: None)
    with pytest.raises(MissingExtraError, match=r"needs lightgbm\. Install it with: pip install lightgbm"):
        RunoffClassifier.load(tmp_path / "model")


def test_other_distributions_of_a_package_count(monkeypatch):
    def version(name):
        if name != "xgboost-cpu":
            raise trusted.metadata.PackageNotFoundError(name)
        return "3.2.0"

    monkeypatch.setattr(trusted.metadata, "version", version)
    assert trusted.version_of("xgboost") == "3.2.0"
    assert trusted.version_of("lightgbm") is None


def test_the_list_names_no_function_that_reads_files_or_runs_code():
    functions = {
        "numpy.dtype",
        "numpy.number",
        "runoff.members.flat",
        "sklearn.compose._column_transformer.make_column_selector",
    }
    for name in trusted.NAMES:
        assert name.rpartition(".")[2].lstrip("_")[0].isupper() or name in functions, name
