"""What the regressor and the classifier share: fitting, predicting, saving."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import _fit_context
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from restt.estimators.callbacks import observed, with_callbacks
from restt.estimators.encoding import Encoding
from restt.estimators.fitting import begin, outputs
from restt.estimators.parameters import Parameters
from restt.estimators.progress import shown_progress
from restt.estimators.reading import read_x
from restt.module import ResTT
from restt.train import EpochRecord


class BaseResTT(Parameters):
    """Everything but what y means."""

    module_: ResTT
    encoding_: Encoding
    target_: Any
    history_: list[EpochRecord]
    n_iter_: int
    precision_: str

    @abstractmethod
    def _read_y(self, y: Any) -> np.ndarray:
        """Targets checked, as an array."""

    @abstractmethod
    def _new_target(self, y: np.ndarray, weights: np.ndarray) -> Any:
        """What turns targets into outputs and back, learned from the rows of a first fit."""

    @property
    @abstractmethod
    def _loss(self) -> str:
        """The training's loss."""

    def _split_labels(self, y: np.ndarray, held: int) -> np.ndarray | None:
        """Labels whose shares a random split of ``held`` rows keeps."""
        return None

    def _finish(self, numbers: np.ndarray, y: np.ndarray, weights: np.ndarray) -> None:
        """Whatever is still to be learned once the weights are, on held-out rows where there are some."""

    @with_callbacks
    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the model; with ``warm_start`` go on from the last fit.

        Parameters
        ----------
        X : table of shape (B, C)
            numpy array, pandas or polars data frame, scipy sparse matrix, or anything that becomes an array.
        y : (B,) targets
            For regression also (B, O).
        sample_weight : (B,), optional
            What each row counts: a row of weight 2 is two rows, one of weight 0 is not there.

        Returns
        -------
        self
        """
        records, epochs = begin(self, X, y, sample_weight, fresh=self._starts_fresh())
        for _ in observed(self, shown_progress(records, epochs, int(self.verbose)), epochs, X, y):
            pass
        return self

    @_fit_context(prefer_skip_nested_validation=True)
    def fit_epochs(self, X: Any, y: Any, sample_weight: Any = None, validation: Any = None) -> Iterator[EpochRecord]:
        """Fit, one epoch for each step of the iteration; after each the estimator can predict. Leave the loop to stop.

        ``validation`` is (X, y) or (X, y, sample_weight) of held-out rows, whose loss and metrics are then in each
        record.

        >>> import numpy as np
        >>> from restt.estimators import ResTTRegressor
        >>> X = np.random.default_rng(0).random((60, 3))
        >>> model = ResTTRegressor(random_state=0)
        >>> for record in model.fit_epochs(X[:40], X[:40, 0], validation=(X[40:], X[40:, 0])):
        ...     if record.validation["r2"][0] > 0.9:
        ...         break
        >>> model.n_iter_ == record.epoch < 100
        True
        """
        fresh = self._starts_fresh()
        records, epochs = begin(self, X, y, sample_weight, fresh=fresh, validation=validation)
        return shown_progress(records, epochs, int(self.verbose))

    def _pass_once(self, X: Any, y: Any, sample_weight: Any) -> Self:
        records, _ = begin(self, X, y, sample_weight, fresh=not self.__sklearn_is_fitted__(), once=True)
        for _ in records:
            pass
        return self

    def numbers(self, X: Any) -> np.ndarray:  # (B, C) float64
        """The table as an exported graph takes it: NaN for a missing value, a category as the number of its level."""
        check_is_fitted(self)
        return self.encoding_.numbers(read_x(self, X, reset=False))

    def export(self, path: str | PathLike[str]) -> Path:
        """Write the fitted model, from numbers to predictions, as a graph for other runtimes.

        ``path`` ends in ``.onnx`` or ``.pt2``, see :func:`restt.interop.export`. The graph takes :meth:`numbers`, for
        a table without categories the table itself, in the dtype of ``module_``; it gives ``predict`` of a regressor
        and ``predict_proba`` of a classifier. A row with a value that ``predict`` refuses has output NaN.
        """
        from restt.estimators.graph import export_graph

        check_is_fitted(self)
        return export_graph(self, path)

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the fitted estimator, to be read by :func:`restt.load`. Nothing in it is ever executed.

        ``path`` is a folder, which then holds ``model.safetensors``, or a file that ends in ``.safetensors``. An
        existing model is replaced at once or, if anything goes wrong, not at all. Returns ``path``.
        """
        from restt.estimators.files import save_estimator

        check_is_fitted(self)
        return save_estimator(self, path)

    def _members(self, X: Any) -> np.ndarray:  # (S, B, O)
        """Outputs of every member."""
        return outputs(self, self.numbers(X))

    def _starts_fresh(self) -> bool:
        return not (self.warm_start and self.__sklearn_is_fitted__())

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "module_")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.categorical = True
        tags.input_tags.allow_nan = self.handle_missing == "learn"
        return tags

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())
        # A pickle made beside a GPU must open where there is none.
        if "module_" in state and state["module_"].first.device.type != "cpu":
            state["module_"] = copy.deepcopy(state["module_"]).cpu()
        return state
