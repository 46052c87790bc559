"""The base of all estimators: outputs, explanations, export, files."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable
from functools import wraps
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Concatenate, ParamSpec, Self, TypeVar

import numpy as np
import torch
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_consistent_length, check_is_fitted
from torch import Tensor

from restt._common.compat_sklearn import StrOptions
from restt._common.ranks import read_group
from restt.estimators.encoding import Encoding
from restt.estimators.gradient import member_outputs
from restt.estimators.streams import Sample
from restt.estimators.tables import Examples, read_sample_weight, read_values, read_x
from restt.estimators.targets import Labels, Values

Given = ParamSpec("Given")
Answer = TypeVar("Answer")
Estimator = TypeVar("Estimator", bound="BaseResTT")


def of_one_fit(
    method: Callable[Concatenate[Estimator, Given], Answer],
) -> Callable[Concatenate[Estimator, Given], Answer]:
    """Make a method read one fit from its first line to its last, also where another thread refits meanwhile."""

    @wraps(method)
    def reading(self: Estimator, /, *args: Given.args, **kwargs: Given.kwargs) -> Answer:
        return method(self._as_it_is(), *args, **kwargs)

    return reading


class BaseResTT(BaseEstimator):
    """The fitted attributes and everything that follows from them."""

    # Parameters of every estimator.
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "categorical_features": ["array-like", None],
        "handle_unknown": [StrOptions({"error", "other"})],
        "handle_missing": [StrOptions({"average", "error"})],
        "device": [str, torch.device],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    categorical_features: Any
    handle_unknown: str
    handle_missing: str
    device: Any
    random_state: Any
    verbose: int | bool

    module_: Any
    encoding_: Encoding
    target_: Any
    site_means_: Tensor | None  # (N, I)
    site_covariances_: Tensor | None  # (N, I, I)
    precision_: str
    n_features_in_: int
    history_: list[Any]  # of trained estimators, as is the next
    n_iter_: int
    fit_report_: dict[str, Any]  # of closed-form estimators
    candidates_: dict[str, tuple[float, float]]  # of the closed-form classifier, as is the next
    posterior_: Any
    prior_: Any  # of the closed-form regressor, as are the next
    spread_: Any
    fit_rows_: Any  # of both closed-form estimators
    _average: Any  # of the classifier
    _before: dict[str, Any]

    @abstractmethod
    def _read_y(self, y: Any) -> np.ndarray:
        """Check targets and return them as an array."""

    def _read_examples(
        self, X: Any, y: Any, sample_weight: Any, *, reset: bool, sample: Sample | None = None
    ) -> Examples:
        """Read a table, its targets and weights, and keep the rows of positive weight."""
        if y is None:
            raise ValueError(f"This {type(self).__name__} estimator requires y to be passed, but the target y is None")
        table = read_x(self, X, reset=reset)
        targets = self._read_y(y)
        check_consistent_length(np.empty(table.rows), targets)
        weights = read_sample_weight(sample_weight, table.rows)
        examples = Examples(table, targets, weights, sample)
        return examples if (weights > 0).all() else examples.take(np.flatnonzero(weights > 0))

    @property
    def _shown(self) -> int:
        """``verbose`` in the first of the processes that train together, 0 in the others."""
        return int(self.verbose) if read_group("auto").first else 0

    def _new_seed(self) -> int:
        """Draw the next number of ``random_state``, the same in all processes that train together."""
        return read_group("auto").same(int(check_random_state(self.random_state).randint(2**31 - 1)))

    def _as_it_is(self) -> Self:
        """Return another object with this one's attributes, which a later fit does not change."""
        now = object.__new__(type(self))
        now.__dict__ = self.__dict__
        return now

    def _for_a_fit(self) -> Self:
        """Copy this estimator for a fit to set attributes on; :meth:`_become` takes them over."""
        made = object.__new__(type(self))
        made.__dict__ = {**self.__dict__}
        made._before = {**made.__dict__}
        return made

    def _become(self, made: Self) -> None:
        """Take over the attributes that ``made`` has set or deleted since :meth:`_for_a_fit`, in one assignment.

        From then on both have the same attributes, so that a training that goes on with ``made`` shows here.
        """
        before = made.__dict__.pop("_before")
        changed = {name: value for name, value in vars(made).items() if before.get(name, made) is not value}
        merged = {**self.__dict__, **changed}
        for name in before.keys() - vars(made).keys():
            merged.pop(name, None)
        self.__dict__ = made.__dict__ = merged

    def _standardised(self) -> Self:
        """Return this model with outputs of comparable size."""
        if isinstance(self.target_, Labels):
            return self
        made = copy.copy(self)
        varies = (self.target_.scale > 0).astype(np.float64)
        made.target_ = Values(np.zeros_like(varies), varies, self.target_.flat)
        return made

    @of_one_fit
    def numbers(self, X: Any) -> np.ndarray:  # (B, C) float64
        """Encode a table in numbers: NaN for a missing value, a category as the number of its level.

        They are the input of an exported graph with ``inputs="numbers"``.
        """
        self._check_fitted()
        return self.encoding_.numbers(read_x(self, X, reset=False))

    @of_one_fit
    def _members(self, X: Any, at_least: int = 1) -> np.ndarray:  # (S, B, O)
        """Return the outputs of every member; ValueError where there are fewer than ``at_least``."""
        numbers = self.numbers(X)
        members = member_outputs(self.module_, self.encoding_, numbers, self.precision_)
        if len(members) < at_least:
            raise ValueError("return_std is the spread over members and needs runs of at least 2, got runs=1")
        return members

    def __call__(self, X: Any) -> np.ndarray:
        """Predict probabilities or values: for tools that take a function, such as ``shap.Explainer(model, X)``."""
        called = self.predict_proba if hasattr(self, "predict_proba") else self.predict
        return np.asarray(called(X))

    @of_one_fit
    def explain_local(self, X: Any, background: Any = None) -> Any:
        """Explain the predictions of these rows: :func:`restt.explain.explain_local`.

        ``background`` is a table that absent columns average; without one, the rows of the fit.
        """
        from restt.explain import explain_local

        return explain_local(self, X, background)

    @of_one_fit
    def explain_global(self, background: Any = None) -> Any:
        """Explain which columns and interactions the model uses: :func:`restt.explain.explain_global`.

        ``background`` is a table whose columns describe the inputs; without one, the rows of the fit.
        """
        from restt.explain import explain_global

        return explain_global(self, background)

    @property
    @of_one_fit
    def feature_importances_(self) -> np.ndarray:  # (C,)
        """Each column's share in the variance of the predictions, alone and in interactions; they sum to one.

        The total Sobol indices divided by their sum, averaged over standardised outputs by the variance predicted:
        exact for columns that are independent with the distribution of the fit's rows. On the scale on which the model
        adds up, see :mod:`restt.explain`.
        """
        if not self.__sklearn_is_fitted__():
            raise AttributeError(f"feature_importances_ is known once this {type(self).__name__} is fitted")
        if self.site_covariances_ is None:
            raise AttributeError(
                "feature_importances_ needs the covariances of the site vectors, which were too large to keep or which "
                "a model saved before they were kept does not have; restt.explain.sobol_indices takes a background"
            )
        from restt.explain import sobol_indices

        indices = sobol_indices(self._standardised(), max_order=1)
        total = np.nan_to_num((indices.total * indices.variance).numpy()).sum(axis=1)
        return total / total.sum() if total.sum() > 0 else np.zeros(len(total))

    @of_one_fit
    def export(self, path: str | PathLike[str], inputs: str = "auto", coverage: float | None = None) -> Path:
        """Write the fitted model, from the table to predictions, as a graph for other runtimes.

        ``path`` ends in ``.onnx`` or ``.pt2``, see :func:`restt.interop.export`. The output ``output`` is ``predict``
        of a regressor (not of one saved by 0.8) and ``predict_proba`` of a classifier, whose ONNX graph also has
        ``label``, the most probable class as text. A row with a value that ``predict`` refuses has output NaN and the
        label ``""``.

        ``inputs="columns"``, for ONNX alone, is the raw table: one input (B,) for each column, under its name, or
        ``column 0`` and so on where the table had none. A category is a string, a double where the levels are numbers;
        ``""``, ``"None"``, ``"nan"`` and ``"<NA>"`` mean missing where they are no level. A number (0 or 1 for a
        boolean) is in the dtype of ``module_``, missing as NaN. ``inputs="numbers"`` is one matrix ``x``:
        :meth:`numbers`, for a table without categories the table itself. ``"auto"`` is the columns for ONNX where one
        of them holds categories. The metadata of an ONNX file says which, with columns, levels and classes as JSON.

        ``coverage``, for :class:`ResTTRegressor` alone, adds the outputs ``lower`` and ``upper``, each of the shape of
        ``output``: the bounds of :meth:`~ResTTRegressor.predict_interval`. A ``.pt2`` program then returns a tuple of
        the three. The file grows by about 8·S·M² bytes, with M inducing rows (the length of ``spread_.numbers``) and S
        averaged processes.
        """
        from restt.estimators.export import export_graph

        check_is_fitted(self)
        names = self.__dict__.get("feature_names_in_")
        spread = self.__dict__.get("spread_")
        return export_graph(self.module_, self.encoding_, self.target_, path, inputs, names, spread, coverage)

    @of_one_fit
    def save(self, path: str | PathLike[str]) -> Path:
        """Write the fitted estimator, to be read by :func:`restt.load`. Nothing in it is ever executed.

        ``path`` is a folder, which then holds ``model.safetensors``, or a file that ends in ``.safetensors``. An
        existing model is replaced at once or, if anything goes wrong, not at all. Returns ``path``.
        """
        from restt.estimators.files import save_estimator

        check_is_fitted(self)
        return save_estimator(self, path)

    def _check_fitted(self) -> None:
        # scikit-learn's own check collects all tags first, at every prediction.
        if not self.__sklearn_is_fitted__():
            check_is_fitted(self)

    def __sklearn_is_fitted__(self) -> bool:
        return "module_" in self.__dict__

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.categorical = True
        tags.input_tags.allow_nan = self.handle_missing == "average"
        return tags

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())
        # A pickle made beside a GPU must open where there is none.
        if "module_" in state and state["module_"].device.type != "cpu":
            state["module_"] = copy.deepcopy(state["module_"]).cpu()
        return state


class ValuePredictions(RegressorMixin):
    """Targets (B,) or (B, O) of a regression."""

    def _read_y(self, y: Any) -> np.ndarray:
        return read_values(y, self)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
