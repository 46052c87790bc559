"""Regression by a residual tensor train that is trained by gradients."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np

from restt._common.compat_sklearn import StrOptions, fit_context
from restt.estimators.base import ValuePredictions, of_one_fit
from restt.estimators.net import BaseNet
from restt.estimators.targets import Values


class ResTTNetRegressor(ValuePredictions, BaseNet):
    """Regression by a residual tensor train over the columns of a table, trained by gradients: the paper's model.

    One column is one site. A column of numbers becomes hat functions, a column of categories (a text or category type
    of a data frame, or named in ``categorical_features``) becomes a one-hot vector, and a missing value is a state of
    its own. y is standardised. :class:`ResTTRegressor` is fitted in closed form and needs no settings; this one is for
    other topologies, feature maps and losses, for more rows than memory holds (:class:`restt.data.Stream`), and for
    trainings that are watched, continued or searched over (:class:`ResTTSearchCV`).

    Parameters
    ----------
    topology : {"residual", "plain", "linear", "volterra"} or Topology
        Which connections the sites have.
    feature_map : {"auto", "identity", "affine", "trigonometric", "polynomial", "hat", "onehot"} or FeatureMap
        What a column of numbers becomes. ``"auto"`` is 8 hats at its quantiles, centred. Others are used as they are:
        the trigonometric map on columns scaled to [0, 1], hats on the raw values, the rest on standardised columns;
        ``"onehot"`` takes every column as categories.
    bond_dim : int, default=10
        Width r of the chain's state: how much interaction the model can hold.
    sigma2 : "auto" or float
        Variance of the initial weights, see :class:`restt.ResTT`.
    loss : {"auto", "mse", "huber"}
        ``"auto"`` is ``"mse"``.
    epochs : "auto" or int
        Passes over the rows; ``"auto"`` is 150 steps, and at least 20 passes.
    lr : float, default=0.05
        Adam's rate.
    schedule : {"constant", "cosine", "warmup", "warmup-cosine"}
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
    site_order : {"auto", "given"} or sequence of column names or numbers
        The order of the columns along the chain; ``"auto"`` is that of the table.
    categorical_features : sequence of column names or numbers, or mask, optional
        Columns to take as categories beside those whose type says so.
    handle_unknown : {"other", "error"}
        What a category that was not in the fit becomes. ``"other"``: levels with less than 1 % of the rows' weight are
        learned as one state, which such a category then takes, or where no level is rare the average of the column's
        states, with a warning. ``"error"``: every level has its own state, and an unseen one is an error.
    handle_missing : {"average", "error"}
        ``"average"``: a column with missing values in the fit gets a state for them; where the fit saw none, a missing
        value is the average of the column's states, with a warning. ``"error"``: any missing value is an error.
    warm_start : bool, default=False
        Whether ``fit`` goes on from the last fit, with its encoding of the columns and of y.
    checkpoint_dir : path, optional
        Save the training here; the same call with the same data goes on where it was stopped, also with more
        ``epochs`` once it is finished, and another training in the same folder is refused.
    precision : {"auto", "float64", "float32", "tf32", "bf16"}
        Of the weights; tf32 and bf16 only concern how the GPU multiplies. ``"auto"`` is float64 on the CPU unless the
        problem is large.
    device : "auto", str or torch.device
        ``"auto"`` is the GPU where there is one and the problem is not small.
    random_state : int, RandomState or None
    verbose : int, default=0
        1 prints about ten lines, 2 a line per epoch.

    Attributes
    ----------
    module_ : restt.ResTT
        The model, with the runs axis.
    history_ : list of restt.train.EpochRecord
        ``history_.to_frame()`` is the same as a pandas data frame of plain columns.
    n_iter_ : int
        Epochs trained.
    feature_importances_ : ndarray (C,)
        Each column's share in the variance of the predictions.
    encoding_ : Encoding
        From the table to site vectors.
    site_means_ : tensor (N, I)
        Mean of the fit's site vectors, 0 where the encoding is centred; None in a model saved before it was kept.
    site_covariances_ : tensor (N, I, I)
        Their covariances, for explanations; None where they were too large to keep or a model was saved before.
    target_ : Values
        Mean and scale of y; the scale is 0 where y is constant.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Only where X had column names.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from restt.estimators import ResTTNetRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = ResTTNetRegressor(bond_dim=4, epochs=20, random_state=0).fit(X[:300], y[:300])
    >>> model.predict(X[300:]).shape, model.n_iter_
    ((142,), 20)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **BaseNet._parameter_constraints,
        "loss": [StrOptions({"auto", "mse", "huber"})],
    }

    @fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Make one pass over these rows. The first call also learns the columns' knots, levels and the scale of y."""
        return self._pass_once(X, y, sample_weight)

    @of_one_fit
    def predict(self, X: Any, return_std: bool = False) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Predict y, (B,) or (B, O): the members' mean, and with ``return_std`` their standard deviation.

        The deviation shows the effect of the initial weights. It says nothing of the noise in y and is far narrower
        than the error to be expected, for which see :meth:`ResTTRegressor.predict`.
        """
        members = self._members(X, at_least=1 + return_std)
        mean = self.target_.decode(members.mean(axis=0))
        return (mean, self.target_.decode_spread(members.std(axis=0))) if return_std else mean

    def _new_target(self, y: np.ndarray, weights: np.ndarray, classes: np.ndarray | None = None) -> Values:
        return Values.fit(y, weights)

    @property
    def _loss(self) -> str:
        return "mse" if self.loss == "auto" else self.loss
