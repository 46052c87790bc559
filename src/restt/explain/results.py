"""Explanations as small objects: of single rows, and of the whole model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from restt._common.errors import check_int, shown
from restt.explain.deviations import latent_deviations, y_deviations
from restt.explain.effects import Effect, effect
from restt.explain.links import Link, check_scale, link_of, measured
from restt.explain.orders import spectrum_of
from restt.explain.paths import aumann_shapley
from restt.explain.scales import labels_of
from restt.explain.shapley import along_paths
from restt.explain.shares import SETTINGS, VarianceShares, variance_shares
from restt.explain.sobol import SobolIndices, sobol_indices
from restt.explain.subject import Subject
from restt.explain.tables import data_frame, html_table, rich_table, text_table
from restt.explain.terms import TopInteractions, top_interactions

# Orders told apart by default; a spectrum of all N costs N times as much as a prediction.
ORDERS = 8
# The largest interactions listed by default, and the most columns in one.
TERMS, TERM_ORDER = 20, 4
# Columns of a printed explanation of rows.
LINES = 12


@dataclass(frozen=True, eq=False)
class _Paths:
    """What a local explanation needs for another scale and for its error bars."""

    subject: Subject
    vectors: Tensor  # (B, N, I)
    means: Tensor  # (N, I)
    link: Link | None

    def take(self, rows: slice) -> _Paths:
        return replace(self, vectors=self.vectors[rows])


@dataclass(frozen=True, eq=False, repr=False)
class LocalExplanation:
    """Why each row has its prediction: values of its columns that sum to prediction - base, and its part of each order.

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
    scale: str = "latent"
    quadrature_error: float = 0.0  # of the values; 0 on the latent scale
    paths: _Paths | None = None
    latent: LocalExplanation | None = None  # of which this is another scale
    error: Tensor | None = None  # (O,) of a distilled model, see Distilled

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
            paths=None if self.paths is None else self.paths.take(one),
            latent=None if self.latent is None else self.latent[place],
        )

    @property
    def method(self) -> str:
        """The name of the values."""
        return "Shapley value" if self.scale == "latent" or self._identical else "Aumann–Shapley value"

    @property
    def _link(self) -> Link | None:
        return Link() if self.paths is None else self.paths.link

    @property
    def _identical(self) -> bool:
        return self._link is not None and self._link.identical

    def measured(self, output: int) -> str:
        """What the values of an output are of: y, a probability, or what the model adds up to."""
        return measured(self._link, self.scale, self.outputs[output])

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
        scale = check_scale(scale, self._link)
        if scale == self.scale:
            return self
        return self._in_y if self.latent is None else self.latent

    @cached_property
    def _in_y(self) -> LocalExplanation:
        link, paths = self._link, self.paths
        assert link is not None
        if link.identical or paths is None:
            return replace(self, scale="y", latent=self)
        found = aumann_shapley(paths.subject, paths.vectors, paths.means, link, self.orders.shape[1] - 1)
        return replace(
            self,
            outputs=link.outputs(self.outputs),
            values=found.values,
            base=link(self.base[None])[0],
            predictions=link(self.predictions),
            orders=found.orders,
            scale="y",
            quadrature_error=found.error,
            latent=self,
        )

    @cached_property
    def std(self) -> np.ndarray | None:  # (B, N, O)
        """Posterior standard deviation of the values of a closed-form regressor, computed when first asked for.

        Exact on the latent scale given hyper-parameters and inducing rows, to first order in y's units; None for a
        model without a posterior.
        """
        if self.paths is None:
            return None
        given = self.paths.subject, self.paths.vectors, self.paths.means
        if self.scale == "latent" or self.paths.link is None:
            return latent_deviations(*given)
        return y_deviations(*given, self.paths.link)

    def to_frame(self, scale: str | None = None) -> Any:
        """One row per row, output and column: its value, and what it adds, in y's units unless ``scale="latent"``.

        The column ``shapley`` holds Shapley values, in y's units Aumann–Shapley values; ``std`` their posterior
        standard deviation where the model has one. ``frame.attrs`` says scale, method and quadrature error.
        """
        found = self.on(scale)
        frame = data_frame(found._records())
        frame.attrs = {"scale": found.scale, "method": found.method, "quadrature_error": found.quadrature_error}
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

    def __repr__(self) -> str:
        return text_table(*self.on()._table())

    def _repr_html_(self) -> str:
        return html_table(*self.on()._table())

    def __rich__(self) -> Any:
        title, header, rows, note = self.on()._table()
        return rich_table(title, [dict(zip(header, row, strict=True)) for row in rows], note)

    def _table(self) -> tuple[str, list[str], list[list[str]], str]:
        measured = [self.measured(o) for o in range(len(self.outputs))]
        single = len(self) == 1
        sizes = self.values[0] if single else np.abs(self.values).mean(axis=0)  # (N, O)
        std = self.std if single else None
        title = f"{self.method}s" if single else f"Mean size of the {self.method}s of {len(self)} rows"
        note = "; ".join(
            f"{name}: {self.base[o]:.4g} + these = {self.predictions[0, o]:.4g}" for o, name in enumerate(measured)
        )
        shown_ = np.argsort(-np.abs(sizes).sum(axis=1), kind="stable")
        rows = [
            [
                self.names[n],
                *([] if self.data is None or not single else [_short(self.data[0, n])]),
                *(
                    f"{size:.4g}" + (f" ± {std[0, n, o]:.2g}" if std is not None else "")
                    for o, size in enumerate(sizes[n])
                ),
            ]
            for n in shown_[:LINES]
        ]
        if len(shown_) > LINES:
            left = np.abs(sizes[shown_[LINES:]]).sum(axis=0) if not single else sizes[shown_[LINES:]].sum(axis=0)
            blank = [] if self.data is None or not single else [""]
            rows.append([f"{len(shown_) - LINES} others", *blank, *(f"{size:.4g}" for size in left)])
        header = ["column", *([] if self.data is None or not single else ["value"]), *measured]
        return title, header, rows, "; ".join([*([note] if single else []), *_distilled(self.error)])

    def to_shap(self, scale: str | None = None) -> Any:
        """A ``shap.Explanation`` of the same values, for shap's plots; in y's units unless ``scale="latent"``."""
        from restt.explain.others import as_shap

        return as_shap(self.on(scale))

    def to_shapiq(self, row: int = 0, output: int = 0, scale: str | None = None) -> Any:
        """The ``shapiq.InteractionValues`` of one row and output; in y's units unless ``scale="latent"``."""
        from restt.explain.others import as_shapiq

        return as_shapiq(self.on(scale), row, output)

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
        return _drawing(drawings, kind)(self.on(scale), output, axes, **options)


@dataclass(frozen=True, eq=False, repr=False)
class GlobalExplanation:
    """What the model has learned: shares of the variance, the largest interactions, and the shape of any effect.

    ``shares`` are of the rows as they are, ``sobol`` and ``interactions`` of independent columns, exact. Prints as one
    table of a dozen lines.
    """

    sobol: SobolIndices
    interactions: TopInteractions
    model: Any
    background: Any
    error: Tensor | None = None  # (O,) of a distilled model, see Distilled

    @property
    def names(self) -> tuple[str, ...]:
        return self.sobol.names

    @property
    def outputs(self) -> tuple[str, ...]:
        return self.sobol.outputs

    @property
    def scale(self) -> str:
        """Shares are of the variance on this scale."""
        link = self._link
        return "y" if link is not None and link.identical else "latent"

    @property
    def _link(self) -> Link | None:
        return link_of(self.model if hasattr(self.model, "target_") else None)

    def measured(self, output: int) -> str:
        """What the shares of an output are of."""
        return measured(self._link, self.scale, self.outputs[output])

    @cached_property
    def shares(self) -> VarianceShares | None:
        """Shares of the variance over the rows as they are; None for an estimator that keeps no rows without any."""
        kept = getattr(getattr(self.model, "spread_", None), "numbers", None)
        if self.background is None and kept is None:
            return None
        return variance_shares(self.model, self.background, [term.columns for term in self.interactions.terms])

    def effect(self, columns: Any, grid: Any = None) -> Effect:
        """The effect of a column or a pair, see :func:`restt.explain.effect`."""
        return effect(self.model, columns, self.background, grid)

    def to_frame(self) -> Any:
        """The columns' shares of the variance; ``shares.to_frame()`` and ``interactions.to_frame()`` have the terms."""
        return self.sobol.to_frame()

    def __repr__(self) -> str:
        return text_table(*self._table())

    def _repr_html_(self) -> str:
        return html_table(*self._table())

    def __rich__(self) -> Any:
        title, header, rows, note = self._table()
        return rich_table(title, [dict(zip(header, row, strict=True)) for row in rows], note)

    def _table(self, output: int = 0) -> tuple[str, list[str], list[list[str]], str]:
        """The largest terms of one output, all others, and their sum."""
        o, shares, terms = output, self.shares, self.interactions.terms[: SETTINGS.terms]
        independent = [float(term.share[o]) for term in terms]
        proven = "proven complete" if self.interactions.complete else "not proven complete"
        others = f"; {len(self.outputs) - 1} more outputs" if len(self.outputs) > 1 else ""
        title = f"Shares of the variance of {self.measured(o)}{others}"
        lines = [[term.label] for term in terms] + [["all other terms"], ["all"]]
        header, notes = ["term"], []
        if shares is not None:
            listed = shares.of_terms[: len(terms), o]
            whole = float(shares.of_terms[:, o].sum() + shares.rest[o])
            carried = [*listed, whole - float(listed.sum()), whole]
            errors = shares.term_errors
            header.append("of the rows")
            for line, share in zip(lines, carried, strict=True):
                line.append(_percent(share))
            notes.append(f"over {shares.rows} rows as they are")
            if errors is not None:
                header += ["±", "P(> 1 %)"]
                for k, line in enumerate(lines):
                    known = k < len(terms)
                    line.append(_percent(errors.std[k, o]) if known else "")
                    line.append(f"{errors.probability[k, o]:.2f}" if known else "")
                notes.append(
                    f"± and P by {shares.settings.draws} draws from the posterior, seed {shares.settings.seed}"
                )
        header.append("independent columns")
        for line, share in zip(lines, [*independent, 1 - sum(independent), 1.0], strict=True):
            line.append(_percent(share))
        notes.append(f"terms of largest variance under independent columns, {proven}")
        return title, header, lines, "; ".join([*notes, *_distilled(self.error)])

    def plot(self, kind: str = "columns", *, output: int = 0, axes: Any = None, **options: Any) -> Any:
        """Draw on new axes or those given, which are returned.

        ``"columns"`` (shares alone and in all), ``"orders"``, ``"heat_map"`` of pairs, ``"network"`` of the largest
        interactions, or ``"effect"`` (option ``columns``). Terms that are not known to have more than one per cent of
        the variance are grey.
        """
        from restt.explain import plots

        if kind == "effect":
            return self.effect(options.pop("columns")).plot(output, axes, **options)
        drawings = {
            "columns": plots.column_bars,
            "orders": plots.order_bars,
            "heat_map": plots.heat_map,
            "network": plots.network,
        }
        return _drawing(drawings, kind)(self, output, axes, **options)


@torch.no_grad()
def explain_local(model: Any, x: Any, background: Any = None, max_order: int | None = None) -> LocalExplanation:
    """The Shapley values and order spectrum of each row, exact; in y's units Aumann–Shapley values.

    Parameters
    ----------
    model : fitted estimator, or restt.ResTT
    x : table, or site vectors (B, N, I) for a module
    background : the same, optional for an estimator, whose rows of the fit it is by default
    max_order : int, optional
        Orders told apart; by default 8, or N where that is less.

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
        _rows_as_given(subject, x),
        paths=_Paths(subject, vectors, means, link_of(subject.estimator)),
        error=subject.error,
    )


def explain_global(
    model: Any, background: Any = None, k: int = TERMS, max_order: int | None = None
) -> GlobalExplanation:
    """Shares of the variance, of the rows and under independent columns, the largest interactions, effects on demand.

    Parameters
    ----------
    model : fitted estimator, or restt.ResTT
    background : table, or site vectors (M, N, I) for a module
        By default the rows of an estimator's fit, where it kept their moments.
    k : int
        How many interactions to list.
    max_order : int, optional
        The most columns in one; by default 4, or N where that is less.

    Examples
    --------
    >>> import numpy as np
    >>> from restt import ResTTNetRegressor
    >>> X = np.random.default_rng(0).random((80, 3))
    >>> model = ResTTNetRegressor(epochs=50, random_state=0).fit(X, X[:, 0] * X[:, 2])
    >>> found = explain_global(model, X)
    >>> sorted(term.label for term in found.interactions.terms[:3])
    ['x0', 'x0 × x2', 'x2']
    """
    subject = Subject.of(model)
    sites = subject.module.sites
    highest = min(sites, TERM_ORDER) if max_order is None else max_order
    interactions = top_interactions(model, background, k, highest)
    return GlobalExplanation(
        sobol_indices(model, background, max_order=min(sites, ORDERS)), interactions, model, background, subject.error
    )


def _distilled(error: Tensor | None) -> list[str]:
    """The note of a distilled model's error."""
    if error is None:
        return []
    return [
        f"distilled: off by {', '.join(f'{each:.2g}' for each in error.tolist())} standard deviations on fresh points"
    ]


def _rows_as_given(subject: Subject, x: Any) -> np.ndarray | None:  # (B, C)
    if hasattr(subject, "labels"):  # trees read tables of their own
        return np.asarray(subject.labels(x))
    return None if subject.estimator is None else labels_of(subject.estimator, x)


def _drawing(drawings: dict[str, Any], kind: str) -> Any:
    if kind not in drawings:
        raise ValueError(f"kind must be one of {sorted(drawings)}, got {shown(kind)}")
    return drawings[kind]


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
