"""Explanations of single rows: values of their columns and parts of each order, on either scale."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from torch import Tensor

from restt._common.errors import check_choice, check_int
from restt.explain.links import Link, Scaled, aumann_shapley, link_of, term_deviations, value_deviations
from restt.explain.shapley import along_paths
from restt.explain.subject import Subject
from restt.explain.tables import Printed, Table, data_frame, short

# Orders that are computed by default; a spectrum of all N costs N times as much as a prediction.
ORDERS = 8
# Columns of a printed explanation of rows.
LINES = 12


@dataclass(frozen=True, eq=False, repr=False)
class LocalExplanation(Scaled, Printed):
    """Explanation of single rows: values of columns that sum to prediction - base, and the part of each order.

    Arrays are numpy's, on the scale that ``scale`` names. :func:`explain_local` makes them on the latent scale: exact
    Shapley values. :meth:`on` gives the same in y's units, where they are Aumann–Shapley values by a quadrature whose
    largest error is ``quadrature_error``. Tables and pictures show y's units unless another scale is asked for.
    """

    names: tuple[str, ...]
    outputs: tuple[str, ...]
    values: np.ndarray  # (B, N, O)
    base: np.ndarray  # (O,) the prediction of the background
    predictions: np.ndarray  # (B, O)
    orders: np.ndarray  # (B, highest+1, O), index = order
    data: np.ndarray | None  # (B, N) the rows as they came; None for a module
    subject: Subject
    vectors: Tensor  # (B, N, I) site vectors
    means: Tensor  # (N, I) of absent sites
    link: Link | None
    scale: str = "latent"
    quadrature_error: float = 0.0  # of the values; 0 on the latent scale
    latent: LocalExplanation | None = None

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[LocalExplanation]:
        return (self[row] for row in range(len(self)))

    def __getitem__(self, row: int) -> LocalExplanation:
        """The explanation of one row."""
        place = check_int("row", row, minimum=-len(self), maximum=len(self) - 1) % len(self)
        one = slice(place, place + 1)
        return replace(
            self,
            values=self.values[one],
            predictions=self.predictions[one],
            orders=self.orders[one],
            data=None if self.data is None else self.data[one],
            vectors=self.vectors[one],
            latent=None if self.latent is None else self.latent[place],
        )

    @property
    def method(self) -> str:
        """The name of the values."""
        exact = self.scale == "latent" or self.link is None or self.link.identical
        return "Shapley value" if exact else "Aumann–Shapley value"

    @property
    def error(self) -> Tensor | None:  # (O,)
        """The error of a distilled model, see :class:`restt.explain.Distilled`; None for others."""
        return self.subject.error

    def _in_units(self, link: Link) -> LocalExplanation:
        base, predictions = link(self.base[None])[0], link(self.predictions)
        given = self.subject, self.vectors, self.means, link, self.orders
        values, orders, error = aumann_shapley(*given, predictions - base)
        orders[:, 0] = base
        return replace(
            self,
            outputs=link.outputs(self.outputs),
            values=values,
            base=base,
            predictions=predictions,
            orders=orders,
            scale="y",
            quadrature_error=error,
            latent=self,
        )

    @cached_property
    def std(self) -> np.ndarray | None:  # (B, N, O)
        """Posterior standard deviation of the values of an estimator in closed form, computed when first asked for.

        Exact on the latent scale given hyper-parameters and inducing rows, to first order in y's units. Of a
        ResTTClassifier it is that of the Laplace approximation of its Gaussian processes; trains in the average add
        what their mean differs by. None for a model without a closed-form posterior: a ResTTClassifier of trains alone,
        trained models, modules and trees.
        """
        link = None if self.scale == "latent" else self.link
        values = self.values if self.latent is None else self.latent.values
        return value_deviations(self.subject, self.vectors, self.means, link, values)

    def interaction(self, columns: Any) -> tuple[np.ndarray, np.ndarray | None]:  # (B, O), (B, O)
        """The centred term of some columns in each row, and its posterior standard deviation where there is one.

        On the latent scale, where terms of all sets of columns sum to the prediction.
        """
        sites = self.subject.sites_of(columns)
        if not sites:
            raise ValueError("columns must be one or more, got none: base is the term of no column")
        away = self.vectors - self.means
        points = {n: away[:, n] for n in sites}
        with torch.no_grad():
            term = self.subject.train(self.means).term(points).mean(dim=0)
        std = term_deviations(self.subject, self.means, points, term)
        return term.cpu().numpy(), None if std is None else std.cpu().numpy()

    def variance_shares(self) -> tuple[np.ndarray, np.ndarray]:  # (N, O), (highest+1, O)
        """Shares of columns and of orders in the variance of these rows' predictions, on this scale.

        The covariance of what each adds with the predictions, over their variance: columns sum to one, and orders where
        all N are computed.
        """
        centred = self.predictions - self.predictions.mean(axis=0)
        squares = (centred**2).sum(axis=0)
        sums = [np.einsum("bkd,bd->kd", parts, centred) for parts in (self.values, self.orders)]
        columns, orders = (np.divide(part, squares, out=np.zeros_like(part), where=squares > 0) for part in sums)
        return columns, orders

    def to_frame(self, scale: str | None = None) -> Any:
        """One row per row, output and column: its value, and what it adds, in y's units unless ``scale="latent"``.

        The column ``shapley`` holds Shapley values, in y's units Aumann–Shapley values; ``std`` their posterior
        standard deviation where the model has one. ``frame.attrs`` says scale, method and quadrature error.
        """
        shown = self.on(scale)
        std = shown.std
        records = [
            {
                "row": row,
                "output": output,
                "column": name,
                **({} if shown.data is None else {"value": shown.data[row, n]}),
                "shapley": float(shown.values[row, n, o]),
                **({} if std is None else {"std": float(std[row, n, o])}),
            }
            for row in range(len(shown))
            for o, output in enumerate(shown.outputs)
            for n, name in enumerate(shown.names)
        ]
        described = {"scale": shown.scale, "method": shown.method, "quadrature_error": shown.quadrature_error}
        return data_frame(records, **described)

    def _table(self) -> Table:
        """The values of one row, or the mean size of those of several, the largest first."""
        shown = self.on()
        single, count = len(shown) == 1, len(shown.outputs)
        values = shown.values[0] if single else np.abs(shown.values).mean(axis=0)  # (N, O)
        std, data = (shown.std, shown.data) if single else (None, None)
        ranked = np.argsort(-np.abs(values).sum(axis=1), kind="stable")
        rows = []
        for n in ranked[:LINES]:
            errors = [""] * count if std is None else [f" ± {error:.2g}" for error in std[0, n]]
            own = [] if data is None else [short(data[0, n])]
            rows.append([shown.names[n], *own, *map(str.__add__, map(short, values[n].tolist()), errors)])
        if len(ranked) > LINES:
            others = map(short, values[ranked[LINES:]].sum(axis=0).tolist())
            rows.append([f"{len(ranked) - LINES} others", *([] if data is None else [""]), *others])
        measured = [shown.measured(o) for o in range(count)]
        ends = zip(measured, shown.base, shown.predictions[0], strict=True) if single else ()
        sums = [f"{name}: {base:.4g} + these = {prediction:.4g}" for name, base, prediction in ends]
        title = f"{shown.method}s" if single else f"Mean size of the {shown.method}s of {len(shown)} rows"
        header = ["column", *([] if data is None else ["value"]), *measured]
        return Table(title, header, rows, "; ".join([*sums, *shown.subject.notes]))

    def to_shap(self, scale: str | None = None) -> Any:
        """A ``shap.Explanation`` for shap's plots, in y's units unless ``scale="latent"``.

        Its values are (B, N), or (B, N, O) of several outputs.
        """
        shown, single = self.on(scale), len(self.outputs) == 1
        base = np.tile(shown.base, (len(shown), 1))
        return _imported("shap").Explanation(
            shown.values[..., 0] if single else shown.values,
            base_values=base[:, 0] if single else base,
            data=shown.data,
            feature_names=list(shown.names),
            output_names=shown.outputs[0] if single else list(shown.outputs),
        )

    def to_shapiq(self, row: int = 0, output: int = 0, scale: str | None = None) -> Any:
        """The ``shapiq.InteractionValues`` of one row and output; in y's units unless ``scale="latent"``.

        They are the Shapley values, and the base as that of no column.
        """
        shown = self.on(scale)
        place = check_int("output", output, minimum=0, maximum=len(shown.outputs) - 1)
        base, count = float(shown.base[place]), len(shown.names)
        values = shown[row].values[0, :, place].tolist()
        scores = {(): base} | {(n,): value for n, value in enumerate(values)}
        sizes = {"min_order": 0, "max_order": 1, "n_players": count}
        shapiq, installed = _imported("shapiq"), version("shapiq")
        if tuple(map(int, installed.split(".")[:2])) < (1, 4):
            raise ImportError(f"to_shapiq() needs shapiq 1.4, which takes scores by name, got {installed}")
        return shapiq.InteractionValues(scores, index="SV", estimated=False, baseline_value=base, **sizes)

    def plot(
        self, kind: str = "waterfall", *, output: int = 0, axes: Any = None, scale: str | None = None, **options: Any
    ) -> Any:
        """Draw on new axes or those given, which are returned; in y's units unless ``scale="latent"``.

        ``"waterfall"`` (option ``row``), ``"beeswarm"``, ``"dependence"`` (option ``column``), or
        ``"orders"``. Values within two posterior standard deviations of 0 are grey.
        """
        from restt.explain import plots

        check_choice("kind", kind, ("waterfall", "beeswarm", "dependence", "orders"))
        return getattr(plots, kind)(self.on(scale), output, axes, **options)


@torch.no_grad()
def explain_local(model: Any, x: Any, background: Any = None, max_order: int | None = None) -> LocalExplanation:
    """The Shapley values and order spectrum of each row, exact; in y's units Aumann–Shapley values.

    Parameters
    ----------
    model : fitted estimator, or restt.ResTT
    x : table, or site vectors (B, N, I) for a module
    background : table like x, optional for an estimator, whose rows of the fit it is by default
    max_order : int, optional
        Highest order; by default 8, or N where that is less.

    Examples
    --------
    >>> import numpy as np
    >>> from restt import ResTTNetRegressor
    >>> X = np.random.default_rng(0).random((80, 3))
    >>> model = ResTTNetRegressor(epochs=20, random_state=0).fit(X, X[:, 0])
    >>> explanation = explain_local(model, X[:5])
    >>> bool(np.allclose(explanation.base + explanation.values.sum(1)[:, 0], model.predict(X[:5])))
    True
    """
    subject = Subject.of(model)
    vectors, means = subject.vectors(x), subject.means(background)
    values = subject.in_columns(along_paths(subject, vectors, means.expand_as(vectors)), 1)
    return LocalExplanation(
        subject.names,
        subject.outputs,
        values.cpu().numpy(),
        subject.decide(means[None])[0].cpu().numpy(),
        subject.decide(vectors).cpu().numpy(),
        subject.train(means).spectrum(vectors - means, subject.highest(max_order, ORDERS)).cpu().numpy(),
        subject.labels(x),
        subject,
        vectors,
        means,
        link_of(subject.estimator),
    )


def _imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ImportError(f"to_{name}() needs the package {name}: pip install {name}") from None
