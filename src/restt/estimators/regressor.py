"""Regression."""

from __future__ import annotations

import copy
from inspect import signature
from os import PathLike
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_array, check_is_fitted

from restt._common.compat_sklearn import StrOptions, fit_context
from restt._common.errors import shown
from restt.estimators.base import BaseResTT
from restt.estimators.distribution import Distribution
from restt.estimators.fitted import of_one_fit
from restt.estimators.gradient import Examples, member_outputs
from restt.estimators.parameters import Parameters
from restt.estimators.posterior import MOST_COLUMNS, ONLY_GRADIENT, solve
from restt.estimators.saved import SavedSpread, with_rare_unseen
from restt.estimators.targets import Modelled, Values
from restt.features import FeatureMap
from restt.features.inputs import unmasked
from restt.prior import Predictive, Prior, Warp
from restt.topology import Topology


class ResTTRegressor(RegressorMixin, BaseResTT):
    """Regression by a residual tensor train over the columns of a table.

    One column is one site. A column of numbers becomes hat functions, a column of categories (a text or category type
    of a data frame, or named in ``categorical_features``) becomes a one-hot vector, and a missing value is a state of
    its own. All interactions of all columns are in the model.

    By default it is fitted in closed form: y, made less skewed by a Yeo–Johnson transform whose power is learned, is
    one Gaussian process of the columns plus noise (:mod:`restt.prior`). Its kernel is a sum of a smooth product over
    the columns, a rough one, a joint Gaussian and an additive part; the hyper-parameters (relevance and length of each
    column, weights of these terms, noise and how it grows) maximise the log marginal likelihood plus hyper-priors that
    were learned on other tables, on up to 2,000 rows. A few such processes under different hyper-priors are averaged by
    stacking weights, from leave-one-out residuals, and outliers are down-weighted by Student-t noise. The posterior is
    exact for up to 10,000 rows; its mean is a train, rounded to bond r or with diagonal cores; its variance and the
    noise make the predictive distribution (``predict_distribution``, ``predict_interval``, ``return_std``).
    ``fit_report_`` says what was done. It runs in float64. Rows whose y is absurdly far from all others are left out,
    with a warning.

    A table of more than 10,000 rows is solved on a sample of 8,000, and that train is then refined on all rows by
    gradients, without anything to choose: penalised by its distance from the start in the prior's own coordinates, less
    so the more rows there are, and kept where it predicts a tenth of the rows (at most 20,000), held out from both, the
    better. Those rows also set the width of intervals. Memory grows with the table, not with its site vectors.

    Parameters
    ----------
    solver : {"auto", "posterior", "gradient"}
        ``"posterior"`` as above, ``"gradient"`` trains by gradient descent. ``"auto"`` is ``"gradient"`` where a
        parameter that only training has is not at its default (``feature_map``, ``topology``, ``sigma2``, ``loss``
        other than squares, ``epochs``, ``lr``, ``schedule``, ``batch_size``, ``penalty``, ``dropout``, ``runs``,
        ``early_stopping``, ``warm_start``, ``checkpoint_dir``), where ``partial_fit`` or ``fit_epochs`` is called, and
        for more than 2,000 columns; ``"posterior"`` with one of these is an error.
    bond_dim : "auto" or int
        Width r of the chain's state: how much interaction the model can hold. ``"auto"`` is the least r that keeps the
        train within 0.03 of the noise from the exact posterior, and diagonal cores where none up to 64 does; 10 for
        gradients.
    feature_map : {"auto", "identity", "affine", "trigonometric", "polynomial", "hat", "onehot"} or FeatureMap
        What a column of numbers becomes. ``"auto"`` is 8 hats at its quantiles, centred. Others are used as they are:
        the trigonometric map on columns scaled to [0, 1], hats on the raw values, the rest on standardised columns;
        ``"onehot"`` takes every column as categories.
    topology : {"residual", "plain", "linear", "volterra"} or Topology
        Which connections the sites have.
    site_order : {"auto", "given"} or sequence of column names or numbers
        The order of the columns along the chain; ``"auto"`` is that of falling relevance, and for gradients that of
        the table.
    sigma2 : "auto" or float
        Variance of the initial weights, see :class:`restt.ResTT`.
    loss : {"auto", "mse", "huber"}
        ``"auto"`` is ``"mse"``. The target is standardised first.
    epochs : "auto" or int
        Passes over the rows; ``"auto"`` is 150 steps, and at least 20 passes.
    lr : float, default=0.05
        Adam's rate.
    schedule : {"constant", "cosine", "warmup", "warmup-cosine", "plateau"}
        Shape of the rate over the epochs.
    batch_size : "auto" or int
        Rows per step; ``"auto"`` is all of them up to 2048 rows, else 512.
    penalty : "auto", float, dict, restt.train.Penalty or None
        L2 penalty. A number p weighs linear entries and head by p and the chain's cores, which carry the interactions,
        by 10 p; a dict gives each of ``chain``, ``linear``, ``head``. ``"auto"`` is 0.02,
        times 2000/rows for more than 2,000 rows; 0.005 for cross-entropy.
    dropout : float, default=0
        Probability with which a site is left out of a step.
    runs : int, default=1
        Members, trained side by side from different initial weights and averaged.
    early_stopping : bool or int, default=False
        Hold out ``validation_fraction`` of the rows, stop after 20 (or this many) epochs without a better loss on
        them, and keep the best epoch.
    validation_fraction : float, default=0.1
    categorical_features : sequence of column names or numbers, or mask, optional
        Columns to take as categories beside those whose type says so.
    handle_unknown : {"other", "error"}
        What a category that was not in the fit becomes. ``"other"``: rare levels are learned as one state, which such a
        category then takes, or where no level is rare the average of the column's states, with a warning. Rare are
        levels of a single row, and all but the 500 most frequent (250 of a refined table); for gradients those with
        less than 1 % of the rows' weight. ``"error"``: every level has its own state, and an unseen one is an error.
    handle_missing : {"learn", "error"}
        ``"learn"``: a column with missing values in the fit gets a state for them; where the fit saw none, a missing
        value is the average of the column's states, with a warning. ``"error"``: any missing value is an error.
    warm_start : bool, default=False
        Whether ``fit`` goes on from the last fit, with its encoding of the columns and of y.
    device : "auto", str, torch.device or a list of them
        ``"auto"`` is the GPU where there is one and the problem is not small. The posterior solver learns its prior
        and refines there, and is back on the CPU afterwards. A list, such as ``["cuda:0", "cuda:1"]``, shares the
        ``runs`` among devices that train at the same time, and so the fits of a :class:`ResTTSearchCV`; the model is
        then on the first of them.
    precision : {"auto", "float64", "float32", "tf32", "bf16"}
        Of the weights; tf32 and bf16 only concern how the GPU multiplies. ``"auto"`` is float64 on the CPU unless the
        problem is large. The posterior solver refines in float32 and ends in float64.
    random_state : int, RandomState or None
    verbose : int, default=0
        1 shows a line that is kept up to date (about ten lines where standard output is no terminal), 2 a table.
    checkpoint_dir : path, optional
        Save the training here; the same call with the same data goes on where it was stopped, also with more
        ``epochs`` once it is finished, and another training in the same folder is refused. Clones, as in a search or
        an ensemble, each have a folder of their own in it.

    Attributes
    ----------
    module_ : restt.ResTT or restt.DiagonalTT
        The model, with the runs axis.
    solver_ : str
        ``"posterior"`` or ``"gradient"``.
    prior_ : restt.prior.Prior
        The learned hyper-parameters, to be printed or plotted: relevance, length and share of a straight line of each
        column, noise, power of the transform of y. Only of the posterior solver, as are
    spread_ : restt.prior.Predictive
        what the predictive distribution needs, with up to 768 rows of the training table, and
    fit_report_ : dict
        what was done: rows, rows that the hyper-parameters were learned on, weights of the averaged processes, whether
        the ``train`` is rounded or diagonal, its bond, error and tolerance of the rounding, error of the predictive
        standard deviation (``spread_error``), leave-one-out R²; for a long table whether the refinement was kept.
    feature_importances_ : ndarray (C,)
        Each column's share in the variance of the predictions.
    history_ : list of restt.train.EpochRecord
        Of the posterior solver the epochs of a long table's refinement. ``history_.to_frame()`` is the same as a pandas
        data frame of plain columns.
    n_iter_ : int
        Epochs trained; evaluations of the log marginal likelihood for the posterior solver.
    encoding_ : Encoding
        From the table to site vectors.
    site_means_ : tensor (N, I)
        Mean of the fit's site vectors, 0 where the encoding is centred; None in a model saved before it was kept.
    site_covariances_ : tensor (N, I, I)
        Their covariances, for explanations; None where they were too large to keep or a model was saved before.
    target_ : Values or Modelled
        Mean and scale of y; the scale is 0 where y is constant. ``target_.label`` says what explanations add up to: y,
        or of the posterior solver the transformed y, in units that are y's near its median.
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
    >>> ResTTRegressor(epochs=20, random_state=0).fit(X, y).solver_
    'gradient'
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **Parameters._parameter_constraints,
        "solver": [StrOptions({"auto", "posterior", "gradient"})],
        "loss": [StrOptions({"auto", "mse", "huber"})],
    }

    target_: Values | Modelled
    prior_: Prior
    spread_: Predictive | SavedSpread

    def __init__(
        self,
        bond_dim: str | int = "auto",
        feature_map: str | FeatureMap = "auto",
        topology: str | Topology = "residual",
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
        checkpoint_dir: str | PathLike[str] | None = None,
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
        self.solver = solver

    @fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """One pass over these rows. The first call also learns the columns' knots, levels and the scale of y."""
        return self._pass_once(X, y, sample_weight)

    @of_one_fit
    def predict(self, X: Any, return_std: bool = False) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Predictions of y, (B,) or (B, O); with ``return_std`` also how uncertain they are, of the same shape.

        Of the posterior solver that is the root mean square error to be expected of a new y, posterior and noise
        together. After training by gradients predictions are the members' mean, and it is the standard deviation over
        the members: how much the initial weights matter. That says nothing of the noise in y and is far narrower.
        """
        self._check_fitted()
        if isinstance(self.target_, Modelled):
            outputs, numbers = self._outputs_and_numbers(X)
            mean = self.target_.decode(outputs)
            if not return_std:
                return mean
            std = self.spread_.std(outputs, numbers, self.target_.model)  # type: ignore[arg-type]
            return mean, self.target_.undivided_spread(std)
        members = self._members(X)
        mean = self.target_.decode(members.mean(axis=0))
        if not return_std:
            return mean
        if len(members) < 2:
            raise ValueError("return_std is the spread over members and needs runs of at least 2, got runs=1")
        return mean, self.target_.decode_spread(members.std(axis=0))

    @of_one_fit
    def predict_interval(self, X: Any, coverage: float = 0.9) -> np.ndarray:
        """Between which a new y lies with probability ``coverage``: (B, 2), for y of shape (B, O) (B, 2, O).

        On y's own scale, with equal tails left and right: two quantiles of :meth:`predict_distribution`, not symmetric
        where the residuals of left-out rows are not. Only the posterior solver knows it.
        """
        target = self._solved_target("predict_interval")
        outputs, numbers = self._outputs_and_numbers(X)
        return target.undivided(self.spread_.interval(outputs, numbers, target.model, coverage))  # type: ignore[arg-type]

    @of_one_fit
    def predict_distribution(self, X: Any) -> Distribution:
        """The predictive distribution of a new y at each row, posterior and noise together.

        An object with ``mean`` and ``std`` (those of :meth:`predict`), ``quantile(q)``, ``cdf(y)`` and
        ``log_density(y)``, arrays of shape (B,) or (B, O). Only the posterior solver knows it.

        >>> X = np.random.default_rng(0).random((60, 2))
        >>> model = ResTTRegressor(random_state=0).fit(X, X[:, 0] + np.random.default_rng(1).normal(size=60))
        >>> found = model.predict_distribution(X[:3])
        >>> found.cdf(found.quantile(0.9)).round(6)
        array([0.9, 0.9, 0.9])
        """
        target = self._solved_target("predict_distribution")
        if not isinstance(target.model, Warp) or isinstance(self.spread_, SavedSpread):
            raise ValueError(
                "predict_distribution needs a model of restt 0.9 or later, and this one was saved by 0.8: fit it again"
            )
        outputs, numbers = self._outputs_and_numbers(X)
        return Distribution(self.spread_.at(outputs, numbers, target.model), target)

    def _solved_target(self, method: str) -> Modelled:
        check_is_fitted(self)
        if not isinstance(self.target_, Modelled):
            raise ValueError(
                f'{method} needs the posterior solver, and this model was fitted with solver_="gradient": fit with '
                'solver="posterior", or put the estimator into an interval method such as MAPIE\'s'
            )
        return self.target_

    def _outputs_and_numbers(self, X: Any) -> tuple[np.ndarray, np.ndarray]:  # (B, O), (B, C)
        numbers = self.numbers(X)
        outputs = member_outputs(self.module_, self.encoding_, numbers, self.precision_)[0]
        if isinstance(self.spread_, SavedSpread):
            return self.spread_.held(outputs, numbers), numbers
        return outputs, with_rare_unseen(self.encoding_, numbers)

    def _standardised(self) -> Self:
        made = copy.copy(self)
        varies = (self.target_.scale > 0).astype(np.float64)
        made.target_ = Values(np.zeros_like(varies), varies, self.target_.flat)
        return made

    def _is_solved(self, columns: int, *, stepwise: bool) -> bool:
        if self.solver == "gradient":
            return False
        defaults = signature(ResTTRegressor).parameters
        given = [name for name in ONLY_GRADIENT if getattr(self, name) != defaults[name].default]
        if self.loss == "huber":
            given.append("loss")
        reasons = [f"{name}={shown(getattr(self, name))} is a parameter of training by gradients" for name in given]
        if stepwise:
            reasons.append("partial_fit and fit_epochs train by gradients")
        if columns > MOST_COLUMNS:
            reasons.append(f"X has {columns} columns, and the posterior solver takes up to {MOST_COLUMNS}")
        if reasons and self.solver == "posterior":
            raise ValueError(f'solver="posterior" cannot be used: {reasons[0]}')
        return not reasons

    def _solve(self, given: Examples) -> None:
        names = list(given.table.names or (f"x{index}" for index in range(given.table.width)))
        seed = self._new_seed()
        found = solve(given, self, names, seed)
        self.module_, self.encoding_, self.target_ = found.module, found.encoding, found.target
        self.spread_, self.prior_ = found.spread, found.prior
        self.precision_, self.solver_ = found.precision, "posterior"
        self.history_, self.n_iter_ = found.history, found.evaluations
        self.fit_report_ = found.report
        self.site_means_, self.site_covariances_ = found.encoding.site_means, found.site_covariances

    def _read_y(self, y: Any) -> np.ndarray:
        y = unmasked(y)
        dtype = getattr(y, "dtype", None)
        if getattr(dtype, "kind", "O") in "Mm":
            raise ValueError(
                f"y must hold numbers, got dtype {dtype}: make a number of it, such as the days since some date"
            )
        try:
            values = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y", estimator=self)
        except ValueError as error:
            if "could not convert string" not in str(error):
                raise
            raise ValueError(f"y must hold numbers ({error}); classes are for ResTTClassifier") from None
        if values.ndim not in (1, 2) or values.size == 0:
            raise ValueError(f"y must have shape (B,) or (B, O), got {values.shape}")
        return np.asarray(values)

    def _new_target(self, y: np.ndarray, weights: np.ndarray, classes: np.ndarray | None = None) -> Values:
        return Values.fit(y, weights)

    @property
    def _loss(self) -> str:
        return "mse" if self.loss == "auto" else self.loss

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
