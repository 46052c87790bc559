"""Gaussian processes, which the paper does not have: hard to beat on small tables.

C. Rasmussen, C. Williams, "Gaussian Processes for Machine Learning" (2006), with a Matérn kernel and one length for
each column. Lengths, and in regression the noise, maximise the marginal likelihood (automatic relevance determination);
classification is by Laplace's approximation, one class against the rest. Columns are standardised, and the target of a
regression too. The smoothness ν = 3/2 is the choice of this project.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Kernel, Matern, WhiteKernel
from sklearn.utils.multiclass import check_classification_targets

from restt_baselines.tabular import Scaled, ScaledRegressor

# In units of a column's standard deviation; at the upper bound the column no longer matters.
LENGTHS = (1e-2, 1e3)
VARIANCES = (1e-3, 1e3)
NOISES = (1e-6, 1e1)
FIRST_NOISE = 0.1
# scikit-learn's warnings of bounds that good fits end at: an irrelevant column, no noise, nothing to explain (lower) or
# classes that are clearly separated (upper). Lengths at their lower bound and noise at its upper one are failures.
EXPECTED_BOUNDS = (
    "length_scale is close to the specified upper bound",
    "noise_level is close to the specified lower bound",
    "constant_value is close to the specified (lower|upper) bound",
)


@dataclass(kw_only=True, eq=False, repr=False)
class GaussianProcess(Scaled):
    """The kernel and its fit.

    Parameters
    ----------
    nu : float
        Smoothness ν of the Matérn kernel; 0.5, 1.5, 2.5 and infinity are much faster than others.
    ard : bool
        Whether each column has a length of its own. Costs a factor of the number of columns in time and memory.
    restarts : int
        Further searches for the lengths, from random ones.
    random_state : int, RandomState or None
        Of the restarts.
    """

    nu: float = 1.5
    ard: bool = True
    restarts: int = 0
    random_state: Any = None

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the kernel and the process to X (B, C) and y (B,); time grows with B³."""
        with warnings.catch_warnings():
            for bound in EXPECTED_BOUNDS:
                warnings.filterwarnings("ignore", f".*{bound}", ConvergenceWarning)
            return super().fit(X, y)

    def _kernel(self, columns: int) -> Kernel:
        length = np.ones(columns) if self.ard else 1.0
        return ConstantKernel(1.0, VARIANCES) * Matern(length, LENGTHS, nu=self.nu)


@dataclass(kw_only=True, eq=False, repr=False)
class GaussianProcessRegression(ScaledRegressor, GaussianProcess):
    """Regression; see :class:`GaussianProcess` and :class:`ScaledRegressor`."""

    multi_output = False
    scale_target = True

    def steps(self, columns: int) -> list[Any]:
        """Estimators that follow the scaler."""
        kernel = self._kernel(columns) + WhiteKernel(FIRST_NOISE, NOISES)
        return [GaussianProcessRegressor(kernel, n_restarts_optimizer=self.restarts, random_state=self.random_state)]


@dataclass(kw_only=True, eq=False, repr=False)
class GaussianProcessClassification(ClassifierMixin, GaussianProcess):
    """Classification; see :class:`GaussianProcess`."""

    multi_output = False

    def steps(self, columns: int) -> list[Any]:
        """Estimators that follow the scaler."""
        kernel = self._kernel(columns)
        return [GaussianProcessClassifier(kernel, n_restarts_optimizer=self.restarts, random_state=self.random_state)]

    def _read(self, X: Any, y: Any, **checks: Any) -> tuple[np.ndarray, np.ndarray]:
        rows, labels = super()._read(X, y, **checks)
        check_classification_targets(labels)
        return rows, labels

    def predict_proba(self, X: Any) -> np.ndarray:  # (B, K)
        """Probability of each class, in the order of ``classes_``."""
        rows = self._read_x(X)
        return np.asarray(self.model_.predict_proba(rows))

    @property
    def classes_(self) -> np.ndarray:  # (K,)
        """The labels in sorted order."""
        return self.model_.classes_
