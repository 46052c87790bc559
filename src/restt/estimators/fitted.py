"""What a fitted model offers whatever its y means: outputs, explanations, importances, export, files."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cached_property, wraps
from os import PathLike
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import numpy as np
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from restt.estimators.encoding import Encoding
from restt.estimators.forks import refuse_lost_threads
from restt.estimators.gradient import member_outputs
from restt.estimators.history import History
from restt.estimators.parameters import Parameters
from restt.estimators.tables import read_x

Given = ParamSpec("Given")
Answer = TypeVar("Answer")
Estimator = TypeVar("Estimator", bound="FittedResTT")


def of_one_fit(
    method: Callable[Concatenate[Estimator, Given], Answer],
) -> Callable[Concatenate[Estimator, Given], Answer]:
    """Have a method read one fit from its first line to its last, also where another thread refits meanwhile."""

    @wraps(method)
    def reading(self: Estimator, /, *args: Given.args, **kwargs: Given.kwargs) -> Answer:
        return method(self._as_it_is(), *args, **kwargs)

    return reading


class FittedResTT(Parameters):
    """The fitted attributes, and what is read off them."""

    encoding_: Encoding
    target_: Any
    _before: dict[str, Any]
    site_means_: Tensor | None
    solver_: str
    n_iter_: int
    precision_: str

    @cached_property
    def module_(self) -> Any:
        """The model: a :class:`restt.ResTT`, or a :class:`restt.DiagonalTT` of the posterior solver."""
        return self._read("module_")

    @cached_property
    def history_(self) -> History:
        """The records of the training."""
        found: History = self._read("history_")
        return found

    @cached_property
    def site_covariances_(self) -> Tensor | None:  # (N, I, I)
        """Covariances of the site vectors over the rows of the fit."""
        found: Tensor | None = self._read("site_covariances_")
        return found

    def _read_later(self, **attributes: Callable[[], Any]) -> None:
        """Have attributes read when they are asked for: of a fit beside a hundred others they hardly ever are."""
        for name in attributes:
            self.__dict__.pop(name, None)
        self._unread = attributes

    def _read(self, name: str) -> Any:
        """An attribute that was not set by a fit."""
        read = self.__dict__.get("_unread", {}).get(name)
        if read is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        found = read()
        self._unread.pop(name, None)  # only now: what could not be read is asked for again
        return found

    def _as_it_is(self) -> Self:
        """Another object with this one's attributes; a fit gives this one a new dict of them, and not the other."""
        now = object.__new__(type(self))
        now.__dict__ = self.__dict__
        return now

    def _for_a_fit(self) -> Self:
        """A copy for a fit to set its attributes on; :meth:`_become` takes them over."""
        made = object.__new__(type(self))
        made.__dict__ = {**self.__dict__}
        if "_unread" in made.__dict__:
            made._unread = dict(made._unread)  # what one of them has read, the other has not
        made._before = {**made.__dict__}
        return made

    def _become(self, made: Self) -> None:
        """Take over what ``made`` has set and deleted since :meth:`_for_a_fit`, in one assignment.

        From then on both have the same attributes, so that a training that goes on with ``made`` shows here.
        """
        before = made.__dict__.pop("_before")
        changed = {name: value for name, value in vars(made).items() if before.get(name, made) is not value}
        merged = {**self.__dict__, **changed}
        for name in before.keys() - vars(made).keys():
            merged.pop(name, None)
        self.__dict__ = made.__dict__ = merged

    def _standardised(self) -> Self:
        """This model with outputs of comparable size."""
        return self

    @of_one_fit
    def numbers(self, X: Any) -> np.ndarray:  # (B, C) float64
        """The table as numbers: NaN for a missing value, a category as the number of its level.

        What an exported graph with ``inputs="numbers"`` takes.
        """
        self._check_fitted()
        return self.encoding_.numbers(read_x(self, X, reset=False))

    @of_one_fit
    def _members(self, X: Any) -> np.ndarray:  # (S, B, O)
        """Outputs of every member."""
        refuse_lost_threads("predict")
        numbers = self.numbers(X)
        return member_outputs(self.module_, self.encoding_, numbers, self.precision_)

    @of_one_fit
    def explain_local(self, X: Any, background: Any = None) -> Any:
        """Why these rows are predicted as they are: :func:`restt.explain.explain_local`.

        ``background`` is a table that absent columns average; without one, the rows of the fit.
        """
        from restt.explain import explain_local

        return explain_local(self, X, background)

    @of_one_fit
    def explain_global(self, background: Any = None) -> Any:
        """Which columns and interactions the model uses: :func:`restt.explain.explain_global`.

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

        found = sobol_indices(self._standardised(), max_order=1)
        total = np.nan_to_num((found.total * found.variance).numpy()).sum(axis=1)
        return total / total.sum() if total.sum() > 0 else np.zeros(len(total))

    @of_one_fit
    def export(self, path: str | PathLike[str], inputs: str = "auto") -> Path:
        """Write the fitted model, from the table to predictions, as a graph for other runtimes.

        ``path`` ends in ``.onnx`` or ``.pt2``, see :func:`restt.interop.export`. The output ``output`` is ``predict``
        of a regressor and ``predict_proba`` of a classifier, whose ONNX graph also has ``label``, the most probable
        class as text. A row with a value that ``predict`` refuses has output NaN and the label ``""``.

        ``inputs="columns"``, for ONNX alone, is the raw table: one input (B,) for each column, under its name, or
        ``column 0`` and so on where the table had none. A category is a string, a double where the levels are numbers;
        ``""``, ``"None"``, ``"nan"`` and ``"<NA>"`` mean missing where they are no level. A number (0 or 1 for a
        boolean) is in the dtype of ``module_``, missing as NaN. ``inputs="numbers"`` is one matrix ``x``:
        :meth:`numbers`, for a table without categories the table itself. ``"auto"`` is the columns for ONNX where one
        of them holds categories. The metadata of an ONNX file says which, with columns, levels and classes as JSON.
        """
        from restt.estimators.export import export_graph

        check_is_fitted(self)
        names = self.__dict__.get("feature_names_in_")
        return export_graph(self.module_, self.encoding_, self.target_, path, inputs, names)

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
        return "module_" in self.__dict__ or "module_" in self.__dict__.get("_unread", ())

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.categorical = True
        tags.input_tags.allow_nan = self.handle_missing == "learn"
        return tags

    def __getstate__(self) -> dict[str, Any]:
        for name in list(self.__dict__.get("_unread", ())):
            getattr(self, name)
        state: dict[str, Any] = dict(super().__getstate__())
        state.pop("_unread", None)
        # A pickle made beside a GPU must open where there is none.
        if "module_" in state and state["module_"].device.type != "cpu":
            state["module_"] = copy.deepcopy(state["module_"]).cpu()
        return state
