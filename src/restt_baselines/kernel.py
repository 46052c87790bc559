"""Kernel methods: the paper's support vector regression (Table VI), and Gaussian processes, which it does not have.

SVR: A. Smola, B. Schölkopf, "A tutorial on support vector regression" (2004), with a radial kernel. The paper gives the
kernel and no settings. With columns and target standardised, C = 0.5 and scikit-learn's own width and tube give its R²
on both of its tables to the third digit.

GP: C. Rasmussen, C. Williams, "Gaussian Processes for Machine Learning" (2006), with a Matérn kernel and one length for
each column, hard to beat on small tables: the lengths are found by the marginal likelihood (automatic relevance
determination), and so is the noise in regression; classification is by Laplace's approximation, one class against the
rest. Columns are standardised, and the target of a regression too. The smoothness ν = 3/2 is the choice of this
project.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Kernel, Matern, WhiteKernel
from sklearn.svm import SVR as SupportVectors
from sklearn.utils.multiclass import check_classification_targets

from restt_baselines.registry import Baseline
from restt_baselines.scaled import Scaled, ScaledRegressor

# In units of a column's standard deviation; at the upper bound the column no longer matters.
LENGTHS = (1e-2, 1e3)
VARIANCES = (1e-3, 1e3)
NOISES = (1e-6, 1e1)
FIRST_NOISE = 0.1
# How scikit-learn's warnings name bounds that good fits end at: a column does not matter, there is no noise, and there
# is nothing to explain (lower) or the classes are clearly apart (upper). Lengths at their lower bound and noise at its
# upper one are failures.
ANSWERS = (
    "length_scale is close to the specified upper bound",
    "noise_level is close to the specified lower bound",
    "constant_value is close to the specified (lower|upper) bound",
)


@dataclass(kw_only=True, eq=False, repr=False)
class SupportVectorRegression(ScaledRegressor):
    """``C``, ``epsilon`` and ``gamma`` as in scikit-learn, for a target of variance 1; see :class:`ScaledRegressor`."""

    multi_output = False
    scale_target = True

    C: float = 0.5
    epsilon: float = 0.1
    gamma: str | float = "scale"

    def steps(self, columns: int) -> list[Any]:
        """Estimators that follow the scaler."""
        return [SupportVectors(C=self.C, epsilon=self.epsilon, gamma=self.gamma)]


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
        with _bounds_are_answers():
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
        return [
            GaussianProcessClassifier(
                self._kernel(columns), n_restarts_optimizer=self.restarts, random_state=self.random_state
            )
        ]

    def _read(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        rows, labels = super()._read(X, y)
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


@contextmanager
def _bounds_are_answers() -> Iterator[None]:
    """No warning of a parameter at a bound that says something about the data, see ``ANSWERS``; others are kept."""
    with warnings.catch_warnings():
        for answer in ANSWERS:
            warnings.filterwarnings("ignore", f".*{answer}", ConvergenceWarning)
        yield


SVR = Baseline.of(regression=SupportVectorRegression)
GP = Baseline.of(classification=GaussianProcessClassification, regression=GaussianProcessRegression)
