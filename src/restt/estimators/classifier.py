"""Classification."""

from __future__ import annotations

import time
from dataclasses import replace
from inspect import signature
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import log_softmax, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, column_or_1d

from restt._common.compat_sklearn import StrOptions, fit_context
from restt._common.errors import shown
from restt.estimators.averaging import fitted_temperature
from restt.estimators.base import BaseResTT
from restt.estimators.encoding import site_covariances
from restt.estimators.fitted import of_one_fit
from restt.estimators.gradient import Examples, member_outputs
from restt.estimators.history import History
from restt.estimators.many_rows import MANY_ROWS, fit_many
from restt.estimators.parameters import Parameters
from restt.estimators.posterior import ONLY_GRADIENT
from restt.estimators.selection import select, suffices
from restt.estimators.targets import Labels, class_numbers

# What an estimator that was trained in this one's place hands over, beside its target.
_TRAINED = ("module_", "encoding_", "precision_", "history_", "n_iter_", "site_means_", "site_covariances_")


class ResTTClassifier(ClassifierMixin, BaseResTT):
    """Classification by a residual tensor train over the columns of a table.

    With its defaults it chooses among candidates: trains over hats and over straight lines under several penalties, the
    mode of the posterior under a prior that is learned from the rows, with and without columns of little relevance, of
    smooth functions and of functions that may jump, and logistic regressions on straight lines and on curves of single
    columns. Each is fitted to the rows outside of five folds; those whose average has the least log-loss on the rows
    inside are averaged, and a temperature is fitted to the same rows, so that probabilities are calibrated as they
    come. The average is one module, whose members' logits are averaged before the softmax: its explanations are exact.
    Of more than 5,000 rows a sample chooses among settings of a training that then sees all rows but a tenth, which
    keeps the best epoch.

    The parameters are those of :class:`ResTTRegressor`, and:

    Parameters
    ----------
    solver : {"auto", "selected", "gradient"}
        ``"selected"`` as above, ``"gradient"`` trains one model (``runs`` of them) by gradient descent. ``"auto"`` is
        ``"gradient"`` where a parameter that only training has is not at its default (those that
        :class:`ResTTRegressor` names, ``bond_dim``, and ``loss="mse"``), where ``partial_fit`` or ``fit_epochs`` is
        called; ``"selected"`` with one of these is an error. Either is ``"gradient"`` for fewer than 10 different rows,
        for a single class, and of up to 5,000 rows for more than 5,000 columns, or more than 500 that together have
        more than 2.5 million entries. Of more than 500 columns the candidates are the logistic regressions alone.
    loss : {"auto", "cross-entropy", "mse"}
        ``"auto"`` is ``"cross-entropy"``: outputs are logits. ``"mse"`` (the paper's choice) fits one-hot targets;
        probabilities are then the softmax of the outputs over a temperature that is fitted, after the training, to
        the log-loss of the training rows, or of the held-out rows with ``early_stopping``.
    handle_unknown : {"other", "error"}
        As there, with fewer levels in a table of many columns: 500, but at most 3,000 divided by the number of columns
        and at least 100; of more than 5,000 rows 250, 1,000 and 100.
    class_weight : "balanced", dict or None
        Factors of the rows' weights by class; ``"balanced"`` makes all classes weigh the same.

    Attributes
    ----------
    classes_ : ndarray (K,)
        The labels in sorted order; those of rows that weigh 0 are not there.
    temperature_ : float
        What outputs are divided by; 1 for gradients with cross-entropy.
    solver_ : str
        ``"selected"`` or ``"gradient"``.
    candidates_ : dict of str to (float, float)
        Of each candidate the log-loss on rows that it was not fitted to, and its share in the average. Only where
        candidates were tried, and not kept in a saved model.
    module_, history_, n_iter_, encoding_, n_features_in_, feature_names_in_
        As in :class:`ResTTRegressor`.

    Members (``runs``) are averaged before the softmax, so that the explanation of the average is exact.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from restt.estimators import ResTTClassifier
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> model = ResTTClassifier(random_state=0).fit(X, y)
    >>> model.solver_, model.predict_proba(X).shape
    ('selected', (150, 3))
    >>> ResTTClassifier(epochs=20, random_state=0).fit(X, y).solver_
    'gradient'
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **Parameters._parameter_constraints,
        "solver": [StrOptions({"auto", "selected", "gradient"})],
        "loss": [StrOptions({"auto", "cross-entropy", "mse"})],
        "class_weight": [StrOptions({"balanced"}), dict, None],
    }

    target_: Labels
    candidates_: dict[str, tuple[float, float]]

    def __init__(
        self,
        bond_dim: str | int = "auto",
        feature_map: Any = "auto",
        topology: Any = "residual",
        site_order: Any = "auto",
        sigma2: str | float = "auto",
        loss: str = "auto",
        epochs: str | int = "auto",
        lr: float = 0.05,
        schedule: str = "cosine",
        batch_size: str | int = "auto",
        penalty: Any = "auto",
        dropout: float = 0.0,
        runs: int = 1,
        early_stopping: bool | int = False,
        validation_fraction: float = 0.1,
        categorical_features: Any = None,
        handle_unknown: str = "other",
        handle_missing: str = "learn",
        warm_start: bool = False,
        device: Any = "auto",
        precision: str = "auto",
        random_state: Any = None,
        verbose: int | bool = 0,
        checkpoint_dir: Any = None,
        class_weight: Any = None,
        solver: str = "auto",
    ) -> None:
        super().__init__(
            bond_dim=bond_dim,
            feature_map=feature_map,
            topology=topology,
            site_order=site_order,
            sigma2=sigma2,
            loss=loss,
            epochs=epochs,
            lr=lr,
            schedule=schedule,
            batch_size=batch_size,
            penalty=penalty,
            dropout=dropout,
            runs=runs,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            categorical_features=categorical_features,
            handle_unknown=handle_unknown,
            handle_missing=handle_missing,
            warm_start=warm_start,
            device=device,
            precision=precision,
            random_state=random_state,
            verbose=verbose,
            checkpoint_dir=checkpoint_dir,
        )
        self.class_weight = class_weight
        self.solver = solver

    @fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """One pass over these rows. The first call needs all ``classes`` and learns the columns' knots and levels."""
        first = not self.__sklearn_is_fitted__()
        if self.class_weight == "balanced":
            raise ValueError('class_weight="balanced" needs all rows at once: give partial_fit the weights as a dict')
        if first and classes is None:
            raise ValueError("classes must be passed on the first call to partial_fit")
        given = None if classes is None else np.unique(column_or_1d(classes))
        if given is not None and not first and not np.array_equal(given, self.classes_):
            raise ValueError(f"classes must be those of the first call, {self.classes_.tolist()}, got {given.tolist()}")
        return self._pass_once(X, y, sample_weight, given)

    @of_one_fit
    def decision_function(self, X: Any) -> np.ndarray:
        """Logits (B, K), whose softmax is ``predict_proba``; for two classes (B,), the second's log-odds."""
        logits = self._logits(X)
        return logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits

    @of_one_fit
    def predict_proba(self, X: Any, return_std: bool = False) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Probabilities (B, K); with ``return_std`` also the spread of members, their standard deviation, (B, K)."""
        members = self._members(X)
        members = members / self.temperature_
        mean = softmax(members.mean(axis=0), axis=1)
        if not return_std:
            return mean
        if len(members) < 2:
            raise ValueError("return_std is the spread over members and needs runs of at least 2, got runs=1")
        return mean, softmax(members, axis=2).std(axis=0)

    @of_one_fit
    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithms of the probabilities, (B, K)."""
        return log_softmax(self._logits(X), axis=1)

    @of_one_fit
    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row, (B,)."""
        best = self._logits(X).argmax(axis=1)
        return self.classes_[best]

    def _logits(self, X: Any) -> np.ndarray:  # (B, K)
        members = self._members(X)
        return members.mean(axis=0) / self.temperature_

    def _is_solved(self, columns: int, *, stepwise: bool) -> bool:
        if self.solver == "gradient":
            return False
        defaults = signature(ResTTClassifier).parameters
        given = [name for name in (*ONLY_GRADIENT, "bond_dim") if getattr(self, name) != defaults[name].default]
        if self.loss == "mse":
            given.append("loss")
        reasons = [f"{name}={shown(getattr(self, name))} is a parameter of training by gradients" for name in given]
        if stepwise:
            reasons.append("partial_fit and fit_epochs train by gradients")
        if reasons and self.solver == "selected":
            raise ValueError(f'solver="selected" cannot be used: {reasons[0]}')
        return not reasons

    def _has_enough(self, given: Examples) -> bool:
        if given.sample is not None:
            # Candidates would be compared and trained on the sample alone.
            if self.solver == "selected":
                raise ValueError('solver="selected" cannot be used: X is a stream, which is trained on by gradients')
            return False
        return len(given) > MANY_ROWS or suffices(given, self)

    def _solve(self, given: Examples) -> None:
        began = time.monotonic()
        seed = self._new_seed()
        if len(given) > MANY_ROWS:
            made, self.candidates_, temperature = fit_many(self, given, seed)
            for name in _TRAINED:
                setattr(self, name, getattr(made, name))
            self.target_ = replace(made.target_, temperature=temperature)
        else:
            found = select(given, self, self._new_target(given.y, given.weights), seed)
            self.module_, self.encoding_, self.target_ = found.module, found.encoding, found.target
            self.precision_, self.candidates_ = found.settings.precision, found.candidates
            self.history_, self.n_iter_ = History(), found.settings.epochs
            self.site_means_ = found.encoding.site_means
            numbers = found.encoding.numbers(given.table)
            self.site_covariances_ = site_covariances(found.encoding, numbers, given.weights)
        self.solver_ = "selected"
        if self._shown:
            print(f"selected · {_shown_candidates(self.candidates_)} · {time.monotonic() - began:.1f} s", flush=True)

    def _read_y(self, y: Any) -> np.ndarray:
        labels = column_or_1d(_as_given(y), warn=True)
        absent = np.ma.getmaskarray(y).ravel() if np.ma.is_masked(y) else np.zeros(0, dtype=bool)
        if labels.dtype.kind in "mM":
            absent = np.isnat(labels)
        if absent.any():
            raise ValueError(f"Input y contains NaN: the label in row {int(absent.argmax())} is missing")
        if labels.dtype.kind == "f":
            check_array(labels, ensure_2d=False, input_name="y", estimator=self)
        if labels.dtype == object:
            _refuse_missing_or_mixed(labels)
            if all(isinstance(label, (bool, Integral, np.bool_)) for label in labels):
                labels = np.array(labels.tolist())  # numbers that came as objects, as they do beside missing ones
        check_classification_targets(labels)
        return labels

    def _new_target(self, y: np.ndarray, weights: np.ndarray, classes: np.ndarray | None = None) -> Labels:
        if classes is None:
            classes = np.unique(y)
        numbers = class_numbers(y, classes)
        shares = np.bincount(numbers, weights, minlength=len(classes))
        factors = self._class_weights(classes, y, shares)
        weighted = shares if factors is None else shares * factors
        return Labels(classes, weighted / weighted.sum(), factors, self._loss == "cross-entropy")

    def _class_weights(self, classes: np.ndarray, y: np.ndarray, shares: np.ndarray) -> np.ndarray | None:  # (K,)
        if self.class_weight is None:
            return None
        if self.class_weight == "balanced":
            return np.asarray(shares.sum() / (len(classes) * shares))
        factors = np.asarray(compute_class_weight(self.class_weight, classes=classes, y=y), dtype=np.float64)
        if not np.isfinite(factors).all() or (factors < 0).any() or not (factors * shares).any():
            raise ValueError(
                f"class_weight must be finite, at least 0, and above 0 for a class in y, got {self.class_weight}"
            )
        return factors

    def _split_labels(self, y: np.ndarray, held: int) -> np.ndarray | None:
        _, counts = np.unique(y, return_counts=True)
        enough = counts.min() >= 2 and min(held, len(y) - held) >= len(counts)
        return y if enough else None

    def _finish(self, examples: Examples) -> None:
        if not self.target_.logits:
            numbers = self.encoding_.numbers(examples.table)
            scores = member_outputs(self.module_, self.encoding_, numbers, self.precision_).mean(axis=0)
            shares = self.target_.row_weights(examples.y, examples.weights)
            temperature = fitted_temperature(scores, class_numbers(examples.y, self.classes_), shares)
            self.target_ = replace(self.target_, temperature=temperature)

    @property
    def classes_(self) -> np.ndarray:  # (K,)
        """The labels in sorted order."""
        return self.target_.classes

    @property
    def temperature_(self) -> float:
        """What outputs are divided by before the softmax."""
        return self.target_.temperature

    @property
    def _loss(self) -> str:
        return "cross-entropy" if self.loss == "auto" else self.loss


def _as_given(y: Any) -> Any:
    """Labels of pandas' nullable types as numpy's of the same kind, where none is missing: else 1 would become 1.0."""
    kind = getattr(getattr(y, "dtype", None), "numpy_dtype", None)
    return y.to_numpy(dtype=kind) if kind is not None and kind.kind in "biu" and not y.isna().any() else y


def _refuse_missing_or_mixed(labels: np.ndarray) -> None:
    """ValueError for labels (B,) of which some are missing; TypeError for text beside numbers."""
    for row, label in enumerate(labels):
        # pandas' own missing value is not equal to itself, without saying so.
        if label is None or type(label).__name__ in ("NAType", "NaTType") or label != label:
            raise ValueError(f"Input y contains NaN: the label in row {row} is missing")
        if isinstance(label, str) != isinstance(labels[0], str):
            both = f"{shown(labels[0])} in row 0 and {shown(label)} in row {row}"
            raise TypeError(f"y must hold labels of one kind, got {both}")


def _shown_candidates(candidates: dict[str, tuple[float, float]]) -> str:
    """Those in the average, with their shares and the log-loss of held-out rows."""
    chosen = sorted(((share, name, loss) for name, (loss, share) in candidates.items() if share > 0), reverse=True)
    return ", ".join(f"{share:.0%} {name} ({loss:.3g})" for share, name, loss in chosen)
