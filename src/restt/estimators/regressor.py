"""Regression in closed form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from restt._common.compat_sklearn import fit_context
from restt.estimators.base import ValuePredictions, of_one_fit
from restt.estimators.closed import ClosedForm
from restt.estimators.encoding import with_rare_unseen
from restt.estimators.gradient import member_outputs
from restt.estimators.modelled import Distribution
from restt.estimators.more_rows import solve_more
from restt.estimators.posterior import Solved, solve
from restt.estimators.saved import SavedSpread
from restt.prior import Warp


@dataclass(kw_only=True, eq=False, repr=False)
class ResTTRegressor(ValuePredictions, ClosedForm):
    """Regression by a residual tensor train over the columns of a table, in closed form.

    One column is one site. A column of numbers becomes hat functions, a column of categories (a text or category type
    of a data frame, or named in ``categorical_features``) becomes a one-hot vector, and a missing value is a state of
    its own. All interactions of all columns are in the model.

    y, made less skewed by a Yeo–Johnson transform whose power is learned, is one Gaussian process of the columns plus
    noise (:mod:`restt.prior`). Its kernel is a sum of a smooth product over the columns, a rough one, a joint Gaussian
    and an additive part; the hyper-parameters (relevance and length of each column, weights of these terms, noise and
    how it grows) maximise the log marginal likelihood plus hyper-priors that were learned on other tables, on up to
    2,000 rows. A few such processes under different hyper-priors are averaged by stacking weights, from leave-one-out
    residuals, and outliers are down-weighted by Student-t noise. The posterior is that of all rows up to 30,000; its
    mean is a train, rounded to bond r or with diagonal cores, and its variance and the noise make the predictive
    distribution (``predict_distribution``, ``predict_interval``, ``return_std``). Rows whose y is absurdly far from all
    others are left out, with a warning.

    A table of more than 30,000 rows is solved on a sample of 8,000, and that train is then refined on all rows by
    gradients, without anything to choose: penalised by its distance from the start in the prior's own coordinates, less
    so the more rows there are, and kept where it predicts a tenth of the rows (at most 20,000), held out from both, the
    better. Those rows also set the width of intervals. Memory grows with the table, not with its site vectors.

    :class:`ResTTNetRegressor` is the same model trained by gradients, with all that training has to choose.

    Parameters
    ----------
    effort : {"quick", "auto", "best"}
        How long the hyper-parameters are searched for, and on how many rows: a preset of
        :class:`restt.prior.Settings`. ``"quick"`` uses 400 rows and few steps, ``"auto"`` 2,000 rows, ``"best"`` 4,000.
    bond_dim : "auto" or int
        Width r of the chain's state: how much interaction the model can hold. ``"auto"`` is the least r that keeps the
        train within 0.03 of the noise from the exact posterior, and diagonal cores where none up to 64 does.
    categorical_features : sequence of column names or numbers, or mask, optional
        Columns to take as categories beside those whose type says so.
    handle_unknown : {"other", "error"}
        What a category that was not in the fit becomes. ``"other"``: rare levels are learned as one state, which such a
        category then takes, or where no level is rare the average of the column's states, with a warning. Rare are
        levels of a single row, and all but the 500 most frequent (250 of a refined table). ``"error"``: every level has
        its own state, and an unseen one is an error.
    handle_missing : {"average", "error"}
        ``"average"``: a column with missing values in the fit gets a state for them; where the fit saw none, a missing
        value is the average of the column's states, with a warning. ``"error"``: any missing value is an error.
    device : "auto", str or torch.device
        Where hyper-parameters are learned and long tables refined; ``"auto"`` is the GPU where there is one and the
        problem is not small. With ``"auto"`` the fitted model is on the CPU.
    random_state : int, RandomState or None
        Of samples of rows, and of the refinement.
    verbose : int, default=0
        1 prints a line when the fit has ended, and about ten for a refinement.

    Attributes
    ----------
    module_ : restt.ResTT or restt.DiagonalTT
        The model, with a runs axis of one.
    prior_ : restt.prior.Prior
        The learned hyper-parameters, to be printed or plotted: relevance, length and share of a straight line of each
        column, noise, power of the transform of y.
    spread_ : restt.prior.Predictive
        What the predictive distribution needs, with up to 768 rows of the training table.
    fit_report_ : dict
        What was done: seconds, rows, rows that the hyper-parameters were learned on, weights of the averaged processes,
        whether the ``train`` is rounded or diagonal, its bond, error and tolerance of the rounding, error of the
        predictive standard deviation (``spread_error``), leave-one-out R² (of held-out rows in a long table), what was
        left out; for a refined table whether the refinement was kept. It prints as a few lines.
    feature_importances_ : ndarray (C,)
        Each column's share in the variance of the predictions.
    encoding_ : Encoding
        From the table to site vectors.
    site_means_ : tensor (N, I)
        Mean of the fit's site vectors.
    site_covariances_ : tensor (N, I, I)
        Their covariances, for explanations; None where they were too large to keep.
    target_ : Modelled
        The scale of y. ``target_.label`` says what explanations add up to: y, or the transformed y, in units that are
        y's near its median.
    fit_rows_ : FitRows or None
        The rows that the model is conditioned on, for :meth:`partial_fit`; None for a refined table, and for a model
        loaded from a file that had no room for them (225 kB of numbers).
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Only where X had column names.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from restt.estimators import ResTTRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = ResTTRegressor(random_state=0).fit(X[:300], y[:300])
    >>> model.predict(X[300:]).shape
    (142,)
    >>> model.predict_interval(X[300:], coverage=0.8).shape
    (142, 2)
    >>> ResTTRegressor(epochs=20)
    Traceback (most recent call last):
    TypeError: ResTTRegressor is fitted in closed form and has no parameter 'epochs': ResTTNetRegressor is the same ...
    """

    _trained: ClassVar[str] = "ResTTNetRegressor"

    fit_rows_ = None  # in a model that was saved without them

    @fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None, *, refit_scales: bool = False) -> Self:
        """Condition the fitted model on more rows, or fit it where it is not fitted.

        Scales, knots, the transform of y and the noise stay those of the first fit; the posterior is that of all rows,
        whatever the order they came in. A category that is new becomes a level of its own. A warning is given where the
        new rows are unlikely under these scales.

        Parameters
        ----------
        X : table of shape (B, C), with the columns of the first fit
        y : (B,) or (B, O) targets
        sample_weight : (B,), optional
        refit_scales : bool, default=False
            Learn everything anew, on all rows; also done where an output was constant until now.

        Returns
        -------
        self

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> X = rng.random((90, 2))
        >>> y = X[:, 0] + 0.1 * rng.normal(size=90)
        >>> model = ResTTRegressor(effort="quick", random_state=0).fit(X[:60], y[:60])
        >>> model.partial_fit(X[60:], y[60:]).fit_report_["rows"]
        90
        """
        if not self.__sklearn_is_fitted__():
            return self._fitted(X, y, sample_weight)
        made = self._for_a_fit()
        given = made._read_examples(X, y, sample_weight, reset=False)
        made._take_over(solve_more(given, made, refit_scales))
        self._become(made)
        return self

    def _fitted(self, X: Any, y: Any, sample_weight: Any) -> Self:
        made = self._for_a_fit()
        given = made._read_rows(X, y, sample_weight)
        names = list(given.table.names or (f"x{index}" for index in range(given.table.width)))
        made._take_over(solve(given, made, names, made._new_seed()))
        self._become(made)
        return self

    def _take_over(self, found: Solved) -> None:
        self.module_, self.encoding_, self.target_ = found.module, found.encoding, found.target
        self.spread_, self.prior_, self.fit_report_ = found.spread, found.prior, found.report
        self.precision_, self.site_means_ = "float64", found.encoding.site_means
        self.site_covariances_, self.fit_rows_ = found.site_covariances, found.rows

    @of_one_fit
    def predict(self, X: Any, return_std: bool = False) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Predictions of y, (B,) or (B, O); with ``return_std`` also how uncertain they are, of the same shape.

        That is the root mean square error to be expected of a new y, posterior and noise together.
        """
        outputs, numbers = self._outputs_and_numbers(X)
        mean = self.target_.decode(outputs)
        if not return_std:
            return mean
        std = self.spread_.std(outputs, numbers, self.target_.model)
        return mean, self.target_.undivided_spread(std)

    @of_one_fit
    def predict_interval(self, X: Any, coverage: float = 0.9) -> np.ndarray:
        """Between which a new y lies with probability ``coverage``: (B, 2), for y of shape (B, O) (B, 2, O).

        On y's own scale, with equal tails left and right: two quantiles of :meth:`predict_distribution`, not symmetric
        where the leave-one-out residuals are not.
        """
        outputs, numbers = self._outputs_and_numbers(X)
        ends = self.spread_.interval(outputs, numbers, self.target_.model, coverage)
        return self.target_.undivided(ends)

    @of_one_fit
    def predict_distribution(self, X: Any) -> Distribution:
        """The predictive distribution of a new y at each row, posterior and noise together.

        An object with ``mean`` and ``std`` (those of :meth:`predict`), ``quantile(q)``, ``cdf(y)`` and
        ``log_density(y)``, arrays of shape (B,) or (B, O).

        >>> X = np.random.default_rng(0).random((60, 2))
        >>> model = ResTTRegressor(random_state=0).fit(X, X[:, 0] + np.random.default_rng(1).normal(size=60))
        >>> found = model.predict_distribution(X[:3])
        >>> found.cdf(found.quantile(0.9)).round(6)
        array([0.9, 0.9, 0.9])
        """
        self._check_fitted()
        if not isinstance(self.target_.model, Warp) or isinstance(self.spread_, SavedSpread):
            raise ValueError(
                "predict_distribution needs a model of restt 0.9 or later, and this one was saved by 0.8: fit it again"
            )
        outputs, numbers = self._outputs_and_numbers(X)
        return Distribution(self.spread_.at(outputs, numbers, self.target_.model), self.target_)

    def _outputs_and_numbers(self, X: Any) -> tuple[np.ndarray, np.ndarray]:  # (B, O), (B, C)
        numbers = self.numbers(X)
        outputs = member_outputs(self.module_, self.encoding_, numbers, self.precision_)[0]
        if isinstance(self.spread_, SavedSpread):
            return self.spread_.shrunk(outputs, numbers), numbers
        return outputs, with_rare_unseen(self.encoding_, numbers)
