"""Explanations of single rows: values of their columns and parts of each order, on either scale."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from restt._common.errors import check_choice, check_int
from restt.explain.deviations import latent_deviations, row_term_deviations, y_deviations
from restt.explain.grids import labels_of
from restt.explain.links import Link, check_scale, link_of, measured
from restt.explain.orders import spectrum_of
from restt.explain.paths import aumann_shapley
from restt.explain.shapley import along_paths
from restt.explain.subject import Subject
from restt.explain.tables import Shown, Table, data_frame, short

# Orders that are computed by default; a spectrum of all N costs N times as much as a prediction.
ORDERS = 8
# Columns of a printed explanation of rows.
LINES = 12


@dataclass(frozen=True, eq=False)
class _Paths:
    """Site vectors of rows, for another scale and for error bars."""

    subject: Subject
    vectors: Tensor  # (B, N, I)
    means: Tensor  # (N, I)
    link: Link | None


@dataclass(frozen=True, eq=False, repr=False)
class LocalExplanation(Shown):
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
    paths: _Paths
    scale: str = "latent"
    quadrature_error: float = 0.0  # of the values; 0 on the latent scale
    latent: LocalExplanation | None = None  # of which this is another scale

    def __len__(self) -> int:
        return len(self.values)

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
            paths=replace(self.paths, vectors=self.paths.vectors[one]),
            latent=None if self.latent is None else self.latent[place],
        )

    @property
    def method(self) -> str:
        """The name of the values."""
        link = self.paths.link
        latent = self.scale == "latent" or link is None or link.identical
        return "Shapley value" if latent else "Aumann–Shapley value"

    @property
    def error(self) -> Tensor | None:  # (O,)
        """The error of a distilled model, see :class:`restt.explain.Distilled`; None for others."""
        return self.paths.subject.error

    def measured(self, output: int) -> str:
        """The quantity that an output's values are measured in, for titles and axes."""
        return measured(self.paths.link, self.scale, self.outputs[output])

    def on(self, scale: str | None = None) -> LocalExplanation:
        """The explanation on the scale ``"y"`` (y's units, or probabilities) or ``"latent"``; by default y's units.

        >>> import numpy as np
        >>> from restt import ResTTRegressor
        >>> X = np.random.default_rng(0).random((40, 2))
        >>> model = ResTTRegressor(effort="quick", random_state=0).fit(X, np.exp(3 * X[:, 0]))
        >>> found = explain_local(model, X).on("y")
        >>> bool(np.allclose(found.base + found.values.sum(1)[:, 0], model.predict(X)))
        True
        """
        scale = check_scale(scale, self.paths.link)
        if scale == self.scale:
            return self
        return self._in_y if self.latent is None else self.latent

    @cached_property
    def _in_y(self) -> LocalExplanation:
        link, paths = self.paths.link, self.paths
        assert link is not None
        if link.identical:
            return replace(self, scale="y", latent=self)
        integrals = aumann_shapley(paths.subject, paths.vectors, paths.means, link, self.orders.shape[1] - 1)
        return replace(
            self,
            outputs=link.outputs(self.outputs),
            values=integrals.values,
            base=link(self.base[None])[0],
            predictions=link(self.predictions),
            orders=integrals.orders,
            scale="y",
            quadrature_error=integrals.error,
            latent=self,
        )

    @cached_property
    def std(self) -> np.ndarray | None:  # (B, N, O)
        """Posterior standard deviation of the values of a closed-form regressor, computed when first asked for.

        Exact on the latent scale given hyper-parameters and inducing rows, to first order in y's units. None for a
        model without a closed-form posterior: classifiers, trained models, modules and trees.
        """
        rows = self.paths.subject, self.paths.vectors, self.paths.means
        if self.scale == "latent" or self.paths.link is None:
            return latent_deviations(*rows)
        return y_deviations(*rows, self.paths.link)

    def interaction(self, columns: Any) -> tuple[np.ndarray, np.ndarray | None]:  # (B, O), (B, O)
        """The centred term of some columns in each row, and its posterior standard deviation where there is one.

        On the latent scale, where terms of all sets of columns sum to the prediction.
        """
        subject, away = self.paths.subject, self.paths.vectors - self.paths.means
        sites = subject.sites(columns)
        if not sites:
            raise ValueError("columns must be one or more, got none: base is the term of no column")
        with torch.no_grad():
            term = subject.train(self.paths.means).term({n: away[:, n] for n in sites}).mean(dim=0)
            return term.cpu().numpy(), row_term_deviations(subject, self.paths.vectors, self.paths.means, sites)

    def to_frame(self, scale: str | None = None) -> Any:
        """One row per row, output and column: its value, and what it adds, in y's units unless ``scale="latent"``.

        The column ``shapley`` holds Shapley values, in y's units Aumann–Shapley values; ``std`` their posterior
        standard deviation where the model has one. ``frame.attrs`` says scale, method and quadrature error.
        """
        shown = self.on(scale)
        frame = data_frame(shown._records())
        frame.attrs = {"scale": shown.scale, "method": shown.method, "quadrature_error": shown.quadrature_error}
        return frame

    def _records(self) -> list[dict[str, Any]]:
        std = self.std
        return [
            {
                "row": row,
                "output": output,
                "column": name,
                **({} if self.data is None else {"value": self.data[row, n]}),
                "shapley": float(self.values[row, n, o]),
                **({} if std is None else {"std": float(std[row, n, o])}),
            }
            for row in range(len(self))
            for o, output in enumerate(self.outputs)
            for n, name in enumerate(self.names)
        ]

    def _table(self) -> Table:
        shown = self.on()
        return shown._row_table() if len(shown) == 1 else shown._mean_table()

    def _row_table(self) -> Table:
        """The values of one row, the largest first."""
        measured, values, std = [self.measured(o) for o in range(len(self.outputs))], self.values[0], self.std
        ranked = np.argsort(-np.abs(values).sum(axis=1), kind="stable")
        rows = []
        for n in ranked[:LINES]:
            errors = [""] * len(measured) if std is None else [f" ± {error:.2g}" for error in std[0, n]]
            own = [] if self.data is None else [short(self.data[0, n])]
            rows.append([self.names[n], *own, *map(str.__add__, map(short, values[n].tolist()), errors)])
        if left := len(ranked) - LINES if len(ranked) > LINES else 0:
            own = [] if self.data is None else [""]
            rows.append([f"{left} others", *own, *map(short, values[ranked[LINES:]].sum(axis=0).tolist())])
        ends = zip(measured, self.base, self.predictions[0], strict=True)
        sums = [f"{name}: {base:.4g} + these = {prediction:.4g}" for name, base, prediction in ends]
        header = ["column", *([] if self.data is None else ["value"]), *measured]
        return Table(f"{self.method}s", header, rows, "; ".join([*sums, *distilled_note(self.paths.subject)]))

    def _mean_table(self) -> Table:
        """The mean size of the values over rows, the largest first."""
        sizes = np.abs(self.values).mean(axis=0)  # (N, O)
        ranked = np.argsort(-sizes.sum(axis=1), kind="stable")
        rows = [[self.names[n], *map(short, sizes[n].tolist())] for n in ranked[:LINES]]
        if len(ranked) > LINES:
            others = sizes[ranked[LINES:]].sum(axis=0).tolist()
            rows.append([f"{len(ranked) - LINES} others", *map(short, others)])
        header = ["column", *(self.measured(o) for o in range(len(self.outputs)))]
        title = f"Mean size of the {self.method}s of {len(self)} rows"
        return Table(title, header, rows, "; ".join(distilled_note(self.paths.subject)))

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
        return _imported("shapiq").InteractionValues(scores, index="SV", estimated=False, baseline_value=base, **sizes)

    def plot(
        self, kind: str = "waterfall", *, output: int = 0, axes: Any = None, scale: str | None = None, **options: Any
    ) -> Any:
        """Draw on new axes or those given, which are returned; in y's units unless ``scale="latent"``.

        ``"waterfall"`` (option ``row``), ``"beeswarm"``, ``"dependence"`` (option ``column``), ``"orders"``, or
        ``"pixels"`` (options ``shape``, ``row``) for columns that are the pixels of an image. Values within two
        posterior standard deviations of 0 are grey.
        """
        from restt.explain import plots

        drawings = {
            "waterfall": plots.waterfall,
            "beeswarm": plots.beeswarm,
            "dependence": plots.dependence,
            "orders": plots.order_bars,
            "pixels": plots.pixel_map,
        }
        check_choice("kind", kind, tuple(drawings))
        return drawings[kind](self.on(scale), output, axes, **options)


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
    >>> found = explain_local(model, X[:5])
    >>> bool(np.allclose(found.base + found.values.sum(1)[:, 0], model.predict(X[:5])))
    True
    """
    subject = Subject.of(model)
    vectors, means = subject.vectors(x), subject.required_means(background)
    sites = subject.module.sites
    highest = min(sites, ORDERS if max_order is None else check_int("max_order", max_order, minimum=1))
    values = subject.in_columns(along_paths(subject, vectors, means.expand_as(vectors)), 1)
    return LocalExplanation(
        subject.names,
        subject.outputs,
        values.cpu().numpy(),
        subject.decide(means[None])[0].cpu().numpy(),
        subject.decide(vectors).cpu().numpy(),
        spectrum_of(subject, vectors, means, highest).cpu().numpy(),
        labels_of(subject, x),
        _Paths(subject, vectors, means, link_of(subject.estimator)),
    )


def distilled_note(subject: Subject) -> list[str]:
    """The error of a distilled model; none for others."""
    if subject.error is None:
        return []
    errors = ", ".join(f"{error:.2g}" for error in subject.error.tolist())
    return [f"distilled: off by {errors} standard deviations on fresh points"]


def _imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ImportError(f"to_{name}() needs the package {name}: pip install {name}") from None
