"""Tree ensembles of other libraries as exact trains."""

from __future__ import annotations

from typing import Any

from restt.explain.trees.boosters import read_catboost, read_lightgbm, read_xgboost
from restt.explain.trees.model import Trees
from restt.explain.trees.sklearn_trees import KINDS, read_sklearn

__all__ = ["Trees", "from_trees"]

# By package the classes that are read.
_READERS = {
    "sklearn": (KINDS, read_sklearn),
    "lightgbm": (("LGBMModel", "Booster"), read_lightgbm),
    "xgboost": (("XGBModel", "Booster"), read_xgboost),
    "catboost": (("CatBoost",), read_catboost),
}


def from_trees(model: Any) -> Trees:
    """A fitted tree ensemble as a train, exactly, for every function of :mod:`restt.explain`.

    A leaf is a product over the columns of its path of subsets of a column's states, bins between all thresholds,
    levels and a missing value, so that an ensemble is a sum of products over binned columns: a residual train with
    diagonal cores, one state per distinct leaf. It equals the model's own prediction on every row, with each library's
    precision of thresholds, directions of missing values and sets of categories.

    Parameters
    ----------
    model : fitted model
        scikit-learn's ``DecisionTree``, ``ExtraTree``, ``RandomForest``, ``ExtraTrees``, ``GradientBoosting`` and
        ``HistGradientBoosting`` regressors and classifiers; LightGBM, XGBoost and CatBoost models, as estimators or
        boosters. Refused by name: linear leaves, ``gblinear``, XGBoost's trees with vector leaves, CatBoost's counters
        of categories (``one_hot_max_size`` avoids them), text and embeddings.

    Returns
    -------
    Trees
        Explained in y's units for regression without a link, as a probability for forests of classes, as a raw score
        (margin) otherwise. ``background`` is a table of rows and must always be given.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.ensemble import GradientBoostingRegressor
    >>> from restt import explain
    >>> X = np.random.default_rng(0).random((200, 3))
    >>> model = GradientBoostingRegressor(random_state=0).fit(X, X[:, 0] * X[:, 1])
    >>> trees = explain.from_trees(model)
    >>> bool(np.allclose(trees.predict(X)[:, 0], model.predict(X)))
    True
    >>> values = explain.shapley_values(trees, X[:5], X)
    >>> values.shape
    torch.Size([5, 3, 1])
    >>> explain.top_interactions(trees, X, k=3)[2].label
    'x0 × x1'
    """
    for base in type(model).__mro__:
        package, kind = base.__module__.split(".")[0], base.__name__
        kinds, read = _READERS.get(package, ((), None))
        if read is not None and kind in kinds:
            return Trees.read(read(model, kind))
    raise TypeError(
        f"model must be a tree ensemble of scikit-learn, LightGBM, XGBoost or CatBoost, got {type(model).__name__} of "
        f"{type(model).__module__.split('.')[0]}"
    )
