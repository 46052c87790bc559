"""The base of both closed-form estimators: no parameter of a training, warnings of odd rows, a report of the fit."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from html import escape
from inspect import Signature, signature
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np

from restt._common.compat_sklearn import Interval, StrOptions, fit_context
from restt._common.errors import shown, warn_caller
from restt.data import Stream
from restt.estimators.base import BaseResTT
from restt.estimators.columns import Column, chosen_columns, fit_columns
from restt.estimators.settings import TRAINING
from restt.estimators.tables import Examples, output_columns
from restt.features.levels import Level, read_level
from restt.prior import Settings

_PRIME = np.uint64(0x9E3779B97F4A7C15)


class FitReport(dict[str, Any]):
    """Report of a fit: a dict of plain values that prints as a few lines.

    >>> report = FitReport(rows=90, seconds=0.51, members={"full": 0.75, "linear": 0.25}, leave_one_out_r2=0.8768)
    >>> report
    rows               90
    seconds            0.51
    members            full 0.75, linear 0.25
    leave_one_out_r2   0.877
    >>> report["members"]["full"]
    0.75
    """

    def __repr__(self) -> str:
        width = max((len(name) for name in self), default=0) + 3
        return "\n".join(f"{name:<{width}}{_shown(value)}" for name, value in self.items())

    __str__ = __repr__

    def _repr_html_(self) -> str:
        rows = (f"<tr><th>{escape(name)}</th><td>{escape(_shown(value))}</td></tr>" for name, value in self.items())
        return f"<table>{''.join(rows)}</table>"


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_shown(each)}" for name, each in value.items()) or "nothing"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


class _InitSignature:
    """The signature of ``__init__``, which a ``__new__`` that takes anything would hide."""

    def __get__(self, instance: Any, owner: type) -> Signature:
        if instance is not None:  # called, it predicts
            raise AttributeError("__signature__")
        found = signature(owner.__init__)  # type: ignore[misc]
        return found.replace(parameters=[*found.parameters.values()][1:], return_annotation=Signature.empty)


@dataclass(kw_only=True, eq=False, repr=False)
class ClosedForm(BaseResTT):
    """An estimator that is solved, not trained. The fields are the parameters of both estimators."""

    effort: str = "auto"
    bond_dim: str | int = "auto"
    categorical_features: Any = None
    handle_unknown: str = "other"
    handle_missing: str = "average"
    device: Any = "auto"
    random_state: Any = None
    verbose: int | bool = 0

    _trained: ClassVar[str]  # the name of the estimator of the same task that is trained
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **BaseResTT._parameter_constraints,
        "effort": [StrOptions(set(Settings.EFFORTS))],
        "bond_dim": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
    }

    __signature__ = _InitSignature()

    def __new__(cls, *args: Any, **parameters: Any) -> Self:
        """Refuse parameters that only training has."""
        cls._refuse_training(parameters)
        return super().__new__(cls)

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : table of shape (B, C)
            numpy array, pandas or polars data frame, scipy sparse matrix, or anything that becomes an array.
        y : (B,) labels of a classifier, (B,) or (B, O) targets of a regressor
        sample_weight : (B,), optional
            What each row counts: a row of weight 2 is two rows, one of weight 0 is not there. A warning is given where
            they sum to less than one row a column, and where most rows are exact copies of others.

        Returns
        -------
        self
        """
        return self._fitted(X, y, sample_weight)

    @abstractmethod
    def _fitted(self, X: Any, y: Any, sample_weight: Any) -> Self:
        """Fit to these rows whatever was fitted before."""

    def set_params(self, **params: Any) -> Self:
        """Set parameters; TypeError for one that only a trained estimator has."""
        self._refuse_training(params)
        made: Self = super().set_params(**params)
        return made

    @classmethod
    def _refuse_training(cls, names: Collection[str]) -> None:
        wrong = [name for name in names if name in TRAINING or name == "solver"]
        if wrong:
            raise TypeError(
                f"{cls.__name__} is fitted in closed form and has no parameter {wrong[0]!r}: "
                f"{cls._trained} is the same model trained by gradients"
            )

    def _fit_columns(self, given: Examples, most_levels: int) -> tuple[Column, ...]:
        kinds = self.categorical_features, self.handle_unknown, self.handle_missing
        return fit_columns(given.table, given.weights, *kinds, most_levels=most_levels)

    def _read_rows(self, X: Any, y: Any, sample_weight: Any) -> Examples:
        """The rows of positive weight; warnings where they are odd, errors where they cannot be solved."""
        if isinstance(X, Stream):
            raise TypeError(
                f"X must be a table, got a stream: {self._trained} trains on rows that do not fit into memory"
            )
        given = self._read_examples(X, y, sample_weight, reset=True)
        if not isinstance(self.bond_dim, str) and self.bond_dim > len(given):
            raise ValueError(
                f"bond_dim must be at most the number of rows, {len(given)}, got bond_dim={shown(self.bond_dim)}"
            )
        warn_of_odd_rows(given, set(chosen_columns("categorical_features", self.categorical_features, given.table)))
        return given


def warn_of_odd_rows(given: Examples, categorical: Collection[int]) -> None:
    """UserWarning where the rows' weights sum to less than a column has, or most rows are copies of others.

    ``categorical``: the columns that hold categories though their type does not say so.
    """
    total, columns = float(given.weights.sum()), given.table.width
    if total < columns + 1 <= len(given):
        warn_caller(
            f"sample_weight sums to {total:.3g} over {len(given)} rows of {columns} columns: the weights say that "
            "there are fewer rows than columns; multiply them so that their mean is 1"
        )
    copies = len(given) - len(np.unique(_contents(given, categorical)))
    # Where values of the columns and of y make few different rows, copies are no accident.
    if 2 * copies > len(given) and math.prod(len(np.unique(c)) for c in _columns(given, categorical)) > len(given):
        warn_caller(
            f"{copies} of {len(given)} rows are exact copies, in X and y, of others; a copy counts as a row seen "
            "twice: drop duplicates unless each was observed"
        )


def _contents(given: Examples, categorical: Collection[int]) -> np.ndarray:  # (B,)
    """A number for each row, the same for rows that hold the same."""
    found = np.zeros(len(given), dtype=np.uint64)
    for codes in _columns(given, categorical):
        found = (found ^ codes) * _PRIME
        found ^= found >> np.uint64(29)
    return found


def _columns(given: Examples, categorical: Collection[int]) -> Iterator[np.ndarray]:  # (B,) each
    """Every column of X and y as whole numbers, the same for the same values."""
    table = given.table
    for column in range(table.width):
        if column in categorical or table.holds_categories(column):
            levels: dict[Level | None, int] = {}
            codes = [levels.setdefault(read_level(value), len(levels)) for value in table.categories(column)]
            yield np.array(codes, dtype=np.uint64)
        else:
            yield _bits(table.numbers(column))
    for values in output_columns(given.y).T:
        is_number = values.dtype.kind in "biuf"
        yield _bits(values) if is_number else np.unique(values, return_inverse=True)[1].astype(np.uint64)


def _bits(values: np.ndarray) -> np.ndarray:
    """Bits of numbers, the same for 0.0 and -0.0 and for every NaN."""
    numbers = values.astype(np.float64) + 0.0
    return np.where(np.isnan(numbers), np.nan, numbers).view(np.uint64)
