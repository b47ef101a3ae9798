"""Types that are trusted in saved classifiers, by package.

skops trusts most of scikit-learn. The list adds estimators of common packages, and the fitted state of compiled code.
Their files contain numbers and settings, no code; but compiled code reads some of them unchecked, so a forged file may
crash the process. Every other type must be listed in `load(path, trusted=(...))`.
"""

from __future__ import annotations

from importlib import metadata

from runoff._io.text import one_line

_METRICS = ("Euclidean", "Manhattan", "Minkowski", "Chebyshev", "SEuclidean", "Hamming", "Canberra", "BrayCurtis")
_KERNELS = (
    "CompoundKernel", "ConstantKernel", "DotProduct", "ExpSineSquared", "Exponentiation", "Matern", "Product", "RBF",
    "RationalQuadratic", "Sum", "WhiteKernel",
)  # fmt: skip

TRUSTED: dict[str, tuple[str, ...]] = {
    "runoff": ("runoff.heads.RidgeHead", "runoff.members.flat"),
    "numpy": ("numpy.dtype", "numpy.number"),
    "python": ("collections.OrderedDict",),
    "scikit-learn": (
        "sklearn.calibration._CalibratedClassifier",
        "sklearn.calibration._SigmoidCalibration",
        "sklearn.calibration._TemperatureScaling",
        "sklearn.compose._column_transformer.make_column_selector",
        "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
        "sklearn.gaussian_process._gpc._BinaryGaussianProcessClassifierLaplace",
        *(f"sklearn.gaussian_process.kernels.{name}" for name in _KERNELS),
        *(f"sklearn.metrics._dist_metrics.{name}Distance{bits}" for name in _METRICS for bits in (32, 64)),
        *(f"sklearn.neighbors._{tree}.{name}{bits}" for tree, name in (("kd_tree", "KDTree"), ("ball_tree", "BallTree"))
          for bits in ("", 32, 64)),
        "sklearn.multiclass._ConstantPredictor",  # only in members with certain samples
        "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
        "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
        "sklearn.tree._tree.Tree",
        "sklearn.utils._bunch.Bunch",
    ),
    "xgboost": ("xgboost.core.Booster", "xgboost.sklearn.XGBClassifier", "xgboost.sklearn.XGBRFClassifier"),
    "lightgbm": ("lightgbm.basic.Booster", "lightgbm.sklearn.LGBMClassifier"),
    "catboost": ("catboost.core.CatBoostClassifier",),
    "imbalanced-learn": (
        "imblearn.combine._smote_enn.SMOTEENN",
        "imblearn.combine._smote_tomek.SMOTETomek",
        "imblearn.ensemble._bagging.BalancedBaggingClassifier",
        "imblearn.ensemble._easy_ensemble.EasyEnsembleClassifier",
        "imblearn.ensemble._forest.BalancedRandomForestClassifier",
        "imblearn.ensemble._weight_boosting.RUSBoostClassifier",
        "imblearn.over_sampling._adasyn.ADASYN",
        "imblearn.over_sampling._random_over_sampler.RandomOverSampler",
        "imblearn.over_sampling._smote.base.SMOTE",
        "imblearn.over_sampling._smote.base.SMOTEN",
        "imblearn.over_sampling._smote.base.SMOTENC",
        "imblearn.over_sampling._smote.cluster.KMeansSMOTE",
        "imblearn.over_sampling._smote.filter.BorderlineSMOTE",
        "imblearn.over_sampling._smote.filter.SVMSMOTE",
        "imblearn.pipeline.Pipeline",
        "imblearn.under_sampling._prototype_selection._edited_nearest_neighbours.EditedNearestNeighbours",
        "imblearn.under_sampling._prototype_selection._nearmiss.NearMiss",
        "imblearn.under_sampling._prototype_selection._random_under_sampler.RandomUnderSampler",
        "imblearn.under_sampling._prototype_selection._tomek_links.TomekLinks",
    ),
}  # fmt: skip
NAMES = frozenset(name for names in TRUSTED.values() for name in names)
ALSO = {"xgboost": ("xgboost-cpu",)}  # other distributions with the same modules
MODULES = {"xgboost": "xgboost", "lightgbm": "lightgbm", "catboost": "catboost", "imblearn": "imbalanced-learn"}


def packages(types: set[str]) -> list[str]:
    """Return the packages of these types, without scikit-learn, whose versions members depend on."""
    return sorted({MODULES[name.partition(".")[0]] for name in types if name.partition(".")[0] in MODULES})


def version_of(package: str) -> str | None:
    """Return the version of an installed package, or None."""
    for distribution in (package, *ALSO.get(package, ())):
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    return None


def refusal(unknown: list[str]) -> str:
    """Return the end of a sentence that says how to load types that are not trusted."""
    names = one_line(", ".join(unknown), 500)
    return (
        f"holds types that are not on the list of trusted types, {names}: if they are yours, or you trust the "
        f"package, pass them as load(path, trusted={tuple(unknown)!r:.500})"
    )
