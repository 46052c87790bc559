"""Classification in closed form."""

from __future__ import annotations

import time
from typing import Any, ClassVar, Self

from restt._common.compat_sklearn import StrOptions, fit_context
from restt.estimators.class_settings import ClassSettings
from restt.estimators.classes import LabelPredictions, new_labels
from restt.estimators.closed import ClosedForm, FitReport
from restt.estimators.encoding import site_covariances
from restt.estimators.selection import select
from restt.estimators.wide_classes import train_wide


class ResTTClassifier(LabelPredictions, ClosedForm):
    """Classification by a residual tensor train over the columns of a table.

    It averages Gaussian processes of the logits (the kernel of :class:`ResTTRegressor` and simpler ones, down to
    logistic regression), low-bond trains that are trained over hats and over straight lines, and the classes' shares.
    Each is fitted to the rows outside of five folds; those whose average has the least log-loss on the rows inside are
    averaged, and a temperature is fitted to the same rows, so that probabilities are calibrated as they come. The
    chosen are then fitted to all rows. The average is one module, whose members' logits are averaged before the
    softmax: its explanations are exact. Of more than 2,500 rows a sample of so many chooses. Of more than 500 columns
    the candidates are logistic regressions alone; fewer than 10 different rows are one.

    :class:`ResTTNetClassifier` is one model trained by gradients, with all that training has to choose.

    Parameters
    ----------
    effort : {"quick", "auto", "best"}
        ``"quick"`` compares fewer candidates on three folds; ``"best"`` learns on twice the rows in twice the steps.
    bond_dim : "auto" or int
        The largest width r of the chain's state of a candidate. ``"auto"`` is 4 or 10 for trained ones and as much as
        the solved ones need, at most 40.
    categorical_features : sequence of column names or numbers, or mask, optional
        Columns to take as categories beside those whose type says so.
    handle_unknown : {"other", "error"}
        As in :class:`ResTTRegressor`, with fewer levels in a table of many columns: 500, but at most 3,000 divided by
        the number of columns and at least 100.
    handle_missing : {"average", "error"}
        As in :class:`ResTTRegressor`.
    device : "auto", str or torch.device
        ``"auto"`` is the GPU where there is one and the problem is not small.
    random_state : int, RandomState or None
        Of folds, initial weights and samples of rows.
    verbose : int, default=0
        1 shows a line when the fit has ended.
    class_weight : "balanced", dict or None
        Factors of the rows' weights by class; ``"balanced"`` makes all classes weigh the same.

    Attributes
    ----------
    classes_ : ndarray (K,)
        The labels in sorted order; those of rows that weigh 0 are not there.
    temperature_ : float
        What outputs are divided by.
    candidates_ : dict of str to (float, float)
        Log-loss of each candidate on rows that it was not fitted to (NaN where rows are too few to judge by), and its
        share in the average. Not kept in a saved model.
    fit_report_ : dict
        What was done: seconds, rows, members and their weights, bond, out-of-fold log-loss, and by how much rounding
        the processes moved the average's logits on the rows. It prints as a few lines.
    module_, encoding_, feature_importances_, n_features_in_, feature_names_in_
        As in :class:`ResTTRegressor`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from restt.estimators import ResTTClassifier
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> model = ResTTClassifier(random_state=0).fit(X, y)
    >>> model.predict_proba(X).shape, model.fit_report_["rows"]
    ((150, 3), 150)
    """

    _trained: ClassVar[str] = "ResTTNetClassifier"
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **ClosedForm._parameter_constraints,
        "class_weight": [StrOptions({"balanced"}), dict, None],
    }

    candidates_: dict[str, tuple[float, float]]

    def __init__(
        self,
        *,
        effort: str = "auto",
        bond_dim: str | int = "auto",
        categorical_features: Any = None,
        handle_unknown: str = "other",
        handle_missing: str = "average",
        device: Any = "auto",
        random_state: Any = None,
        verbose: int | bool = 0,
        class_weight: Any = None,
    ) -> None:
        self.effort = effort
        self.bond_dim = bond_dim
        self.categorical_features = categorical_features
        self.handle_unknown = handle_unknown
        self.handle_missing = handle_missing
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        self.class_weight = class_weight

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : table of shape (B, C)
            numpy array, pandas or polars data frame, scipy sparse matrix, or anything that becomes an array.
        y : (B,) labels
        sample_weight : (B,), optional
            What each row counts: a row of weight 2 is two rows, one of weight 0 is not there. A warning is given where
            they sum to less than one row a column, and where most rows are exact copies of others.

        Returns
        -------
        self
        """
        began, made = time.monotonic(), self._for_a_fit()
        given, seed = made._read_rows(X, y, sample_weight), made._new_seed()
        settings = ClassSettings.of_effort(self.effort)
        if given.table.width > settings.most_columns and len(given) > settings.most_rows:
            found = train_wide(given, made, seed)
        else:
            found = select(given, made, new_labels(given.y, given.weights, self.class_weight), seed)
        made.module_, made.encoding_, made.target_ = found.module, found.encoding, found.target
        made.precision_, made.candidates_ = found.precision, found.candidates
        made.site_means_ = found.encoding.site_means
        made.site_covariances_ = site_covariances(found.encoding, found.encoding.numbers(given.table), given.weights)
        made.fit_report_ = FitReport(
            effort=self.effort,
            seconds=round(time.monotonic() - began, 2),
            rows=len(given),
            members=_shares(found.candidates),
            out_of_fold_log_loss=found.loss,
            rounding_error=found.rounding_error,
            bond_dim=found.module.bond_dim,
        )
        self._become(made)
        if self._shown:
            print(str(self.fit_report_), flush=True)
        return self


def _shares(candidates: dict[str, tuple[float, float]]) -> dict[str, float]:
    """Those in the average, the largest share first."""
    chosen = sorted(((share, name) for name, (_, share) in candidates.items() if share > 0), reverse=True)
    return {name: share for share, name in chosen}
