"""Classification in closed form, and by gradients where both columns and rows are many."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from restt._common.compat_sklearn import StrOptions, fit_context, safe_indexing
from restt._common.errors import shown
from restt.estimators.class_more_rows import select_more
from restt.estimators.class_rows import ClassSettings, with_all_classes_first
from restt.estimators.classes import LabelPredictions, fitted_temperature, log_loss, new_labels, read_labels
from restt.estimators.closed import ClosedForm, FitReport
from restt.estimators.encoding import site_covariances
from restt.estimators.net_classifier import ResTTNetClassifier
from restt.estimators.selection import Selected, select
from restt.estimators.tables import read_sample_weight
from restt.features import Trigonometric


@dataclass(kw_only=True, eq=False, repr=False)
class ResTTClassifier(LabelPredictions, ClosedForm):
    """Classification by a residual tensor train over the columns of a table.

    It averages Gaussian processes of the logits (the kernel of :class:`ResTTRegressor`, a Gaussian kernel, and logistic
    regression), low-bond trains that are trained by gradients, and the classes' shares. Each is fitted to the rows
    outside of up to five folds; those whose average has the least log-loss on the rows inside are averaged, and fitted
    to all rows, of more than 20,000 to a random sample. The average is one module, whose members' logits are averaged
    before the softmax: its explanations are exact. Where rows and columns are so many that kernels would take minutes
    (20,000 rows of 95 columns, 10,000 of 190) it is the better of two trainings by gradients, of less than 2,500 rows a
    logistic regression, as it is of fewer than 10 different rows.

    :class:`ResTTNetClassifier` is one model trained by gradients, with all that training has to choose.

    Parameters
    ----------
    effort : {"quick", "auto", "best"}
        ``"quick"`` compares fewer candidates on three folds; ``"best"`` learns on twice the rows in twice the steps.
    bond_dim : "auto" or int
        The largest width r of the chain's state of a candidate. ``"auto"`` is 8 for trained ones and as much as the
        kernels need, at most 40; where that is too few, their sum stays a :class:`restt.DiagonalTT`. An integer always
        rounds it.
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
        What outputs are divided by; 1 but for tables of many rows and columns that are trained by gradients.
    candidates_ : dict of str to (float, float)
        Log-loss of each candidate on rows that it was not fitted to (NaN where rows are too few to judge by), and its
        share in the average; without trains where those of the first folds would have none. Not kept in a saved model.
    fit_report_ : dict
        What was done: seconds, rows, members and their weights, bond, out-of-fold log-loss, and by how much rounding
        the processes moved the average's logits on the rows. It prints as a few lines.
    posterior_ : restt.prior.laplace.LogitPosterior or None
        Laplace posteriors of the averaged Gaussian processes, for error bars of explanations; trained trains have none.
        Of more than 2,304 rows, divided by K - 1 for K classes, it is kept on a sample. None where no Gaussian
        process has a share, with one class or more than 48, and in models saved before 1.0.0rc4.
    fit_rows_ : FitRows or None
        The rows of the fit, for :meth:`partial_fit`; None after a training by gradients, of more than 20,000 rows
        (2,000 with ``effort="quick"``), and in a model that was read from a file.
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

    class_weight: Any = None

    fit_rows_ = None  # in a model that was read from a file, as is the next
    _average = None

    _trained: ClassVar[str] = "ResTTNetClassifier"
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **ClosedForm._parameter_constraints,
        "class_weight": [StrOptions({"balanced"}), dict, None],
    }

    @fit_context(prefer_skip_nested_validation=True)
    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None, *, refit_scales: bool = False
    ) -> Self:
        """Condition the fitted model on more rows, or fit it where it is not fitted.

        Candidates, their hyper-parameters and weights, and knots stay those of the first fit; the processes' mode is
        that of all rows, whatever the order they came in, and low-bond trains with a share are trained on with all rows
        from where the first fit's folds had left them. A category that is new becomes a level of its own. A warning is
        given where the new rows are unlikely under the first fit.

        Parameters
        ----------
        X : table of shape (B, C), with the columns of the first fit
        y : (B,) labels
        classes : (K,), optional
            In the first call, all classes that may come; by default those in its ``y``.
        sample_weight : (B,), optional
        refit_scales : bool, default=False
            Learn everything anew, on all rows; also done where there were too few to choose candidates by.

        Returns
        -------
        self

        Examples
        --------
        >>> X = np.random.default_rng(0).random((90, 2))
        >>> y = X[:, 0] > X[:, 1]
        >>> model = ResTTClassifier(effort="quick", random_state=0).fit(X[:60], y[:60])
        >>> model.partial_fit(X[60:], y[60:]).fit_report_["rows"]
        90
        """
        if classes is not None and np.ndim(classes) != 1:
            raise ValueError(f"classes must be a list of labels, got {shown(classes)}")
        given = None if classes is None else np.unique(read_labels(classes))
        if not self.__sklearn_is_fitted__():
            return self._fitted(X, y, sample_weight, given)
        if given is not None and not np.array_equal(given, self.classes_):
            raise ValueError(f"classes must be those of the first fit, {self.classes_.tolist()}, got {given.tolist()}")
        began, made = time.monotonic(), self._for_a_fit()
        before = made.fit_rows_
        found, odds = select_more(made._read_examples(X, y, sample_weight, reset=False), made, refit_scales)
        assert found.rows is not None
        more = {"rows_before": 0 if before is None else len(before), "probability_of_new_rows": odds}
        made._take_over(found, found.rows.numbers, found.rows.weights, began, more)
        self._become(made)
        return self

    def _fitted(self, X: Any, y: Any, sample_weight: Any, classes: np.ndarray | None = None) -> Self:
        began, made = time.monotonic(), self._for_a_fit()
        given, seed = made._read_rows(X, y, sample_weight), made._new_seed()
        settings = ClassSettings.of_effort(self.effort)
        if settings.is_costly(len(given), given.table.width) and len(given) > settings.step_rows:
            if classes is not None and not np.array_equal(classes, found_in_y := np.unique(given.y)):
                raise ValueError(
                    f"classes must be those of y, {found_in_y.tolist()}, for a table of {len(given)} rows and "
                    f"{given.table.width} columns, which is trained by gradients; got {classes.tolist()}"
                )
            found = train_wide(X, y, sample_weight, made, seed)
        else:
            target = new_labels(given.y, given.weights, self.class_weight, classes=classes)
            # scipy's BLAS only has the vectors of searches, for which its threads wait; torch has a BLAS of its own.
            with threadpool_limits(limits=1, user_api="blas"):
                found = select(given, made, target, seed)
        made._take_over(found, found.encoding.numbers(given.table), given.weights, began, {})
        self._become(made)
        if self._shown:
            print(str(self.fit_report_), flush=True)
        return self

    def _take_over(
        self, found: Selected, numbers: np.ndarray, weights: np.ndarray, began: float, more: dict[str, Any]
    ) -> None:
        self.module_, self.encoding_, self.target_ = found.module, found.encoding, found.target
        self.precision_, self.candidates_, self.posterior_ = found.precision, found.candidates, found.posterior
        self.site_means_ = found.encoding.site_means
        self.site_covariances_ = site_covariances(found.encoding, numbers, weights)
        self.fit_rows_, self._average = found.rows, found.average
        self.fit_report_ = FitReport(
            effort=self.effort,
            seconds=round(time.monotonic() - began, 2),
            rows=len(numbers),
            members=_shares(found.candidates),
            out_of_fold_log_loss=found.loss,
            rounding_error=found.rounding_error,
            bond_dim=found.module.bond_dim,
            **more,
        )


def _shares(candidates: dict[str, tuple[float, float]]) -> dict[str, float]:
    """Shares of the candidates in the average, the largest first."""
    chosen = sorted(((share, name) for name, (_, share) in candidates.items() if share > 0), reverse=True)
    return {name: share for share, name in chosen}


@dataclass(frozen=True)
class WideSettings:
    """Settings of trainings on many columns and rows: the numbers of 0.2, chosen on MNIST's training images.

    Kernels of so many columns take too long and learn little beyond straight lines; images are such tables.
    """

    # Few weights under a penalty, and many without one over a smooth map, which learn slowly.
    candidates: dict[str, dict[str, Any]] = field(
        default_factory=lambda: {
            "hats, bond 10, penalty 0.005": {"bond_dim": 10, "penalty": 0.005},
            "trigonometric, bond 50": {
                **{"feature_map": Trigonometric(outside="clamp"), "bond_dim": 50},
                **{"penalty": None, "lr": 0.003},
            },
        }
    )
    # Rows of the sample that candidates are judged on, and passes over it; rows held out to judge by.
    sample: int = 12_000
    sample_epochs: int = 8
    held_out_share: float = 0.1
    most_held_out: int = 10_000
    # Steps of the training on all rows, between fewest and most passes.
    batch: int = 512
    steps: int = 4000
    fewest_epochs: int = 5
    most_epochs: int = 20


def train_wide(X: Any, y: Any, sample_weight: Any, estimator: ResTTClassifier, seed: int) -> Selected:
    """Train the candidate with the least log-loss on held-out rows, after a training on a sample, on all other rows."""
    own, labels = WideSettings(), read_labels(y)
    weights = read_sample_weight(sample_weight, len(labels))
    order = with_all_classes_first(np.random.default_rng(seed).permutation(np.flatnonzero(weights > 0)), labels)
    count = min(own.most_held_out, round(own.held_out_share * len(order)))
    kept, held_out = np.split(order, [max(len(order) - count, len(np.unique(labels[order])))])
    shared = ("categorical_features", "handle_unknown", "handle_missing", "device", "class_weight")

    def trained(rows: np.ndarray, options: dict[str, Any], epochs: int, verbose: int) -> ResTTNetClassifier:
        model = ResTTNetClassifier(
            **{name: getattr(estimator, name) for name in shared},
            **options,
            random_state=seed,
            batch_size=own.batch,
            epochs=epochs,
            verbose=verbose,
        )
        return model.fit(safe_indexing(X, rows), labels[rows], weights[rows])

    def outputs(model: ResTTNetClassifier) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        target, y = model.target_, labels[held_out]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of levels that only held-out rows have
            logits = model.predict_log_proba(safe_indexing(X, held_out))
        return logits, np.searchsorted(target.classes, y), target.row_weights(y, weights[held_out])

    sample, losses = kept[: own.sample], {}
    for name, options in own.candidates.items():
        with warnings.catch_warnings():
            # A candidate that comes to nothing on the sample is not chosen.
            warnings.simplefilter("ignore", ConvergenceWarning)
            losses[name] = float(log_loss(*outputs(trained(sample, options, own.sample_epochs, 0))))
    best = min(losses, key=lambda name: losses[name])
    options = own.candidates[best]
    if options["penalty"] is not None:
        # The loss is a mean over rows: the penalty that was right for the sample is a smaller one for more rows.
        options = {**options, "penalty": options["penalty"] * len(sample) / len(kept)}
    epochs = int(np.clip(own.steps * own.batch // len(kept), own.fewest_epochs, own.most_epochs))
    model = trained(kept, options, epochs, estimator._shown)
    logits, numbers, row_weights = outputs(model)
    temperature = fitted_temperature(logits, numbers, row_weights)
    losses[best] = float(log_loss(logits / temperature, numbers, row_weights))
    candidates = {name: (loss, float(name == best)) for name, loss in losses.items()}
    target = replace(model.target_, temperature=temperature)
    return Selected(model.module_, model.encoding_, target, model.precision_, candidates, losses[best], 0.0)
