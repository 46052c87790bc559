"""Explanations as small objects: of single rows, and of the whole model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from restt._common.errors import check_int, shown
from restt.explain.effects import Effect, effect
from restt.explain.orders import spectrum_of
from restt.explain.scales import labels_of
from restt.explain.shapley import along_paths
from restt.explain.sobol import SobolIndices, sobol_indices
from restt.explain.subject import Subject
from restt.explain.tables import data_frame, rich_table
from restt.explain.terms import TopInteractions, top_interactions

# Orders told apart by default; a spectrum of all N costs N times as much as a prediction.
ORDERS = 8
# The largest interactions listed by default, and the most columns in one.
TERMS, TERM_ORDER = 20, 4


@dataclass(frozen=True, eq=False)
class LocalExplanation:
    """Why each row has its prediction: Shapley values that sum to prediction - base, and its part of each order."""

    names: tuple[str, ...]
    outputs: tuple[str, ...]
    values: Tensor  # (B, N, O)
    base: Tensor  # (O,) the prediction of the background
    predictions: Tensor  # (B, O), on the decision scale
    orders: Tensor  # (B, highest+1, O), index = order
    data: np.ndarray | None  # (B, N) the rows as they came; None for a module
    error: Tensor | None = None  # (O,) of a distilled model, see Distilled

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, row: int) -> LocalExplanation:
        """The explanation of one row."""
        place = check_int("row", row, minimum=-len(self), maximum=len(self) - 1) % len(self)
        one = slice(place, place + 1)
        data = None if self.data is None else self.data[one]
        return replace(
            self, values=self.values[one], predictions=self.predictions[one], orders=self.orders[one], data=data
        )

    def to_frame(self) -> Any:
        """One row per row, output and column: its value and its Shapley value."""
        return data_frame(
            [
                {
                    "row": row,
                    "output": output,
                    "column": name,
                    **({} if self.data is None else {"value": self.data[row, n]}),
                    "shapley": float(self.values[row, n, o]),
                }
                for row in range(len(self))
                for o, output in enumerate(self.outputs)
                for n, name in enumerate(self.names)
            ]
        )

    def __rich__(self) -> Any:
        if len(self) == 1:
            title = "Shapley values"
            notes = [
                f"{output}: {float(self.base[o]):.4g} + these = {float(self.predictions[0, o]):.4g}"
                for o, output in enumerate(self.outputs)
            ]
        else:
            title, notes = f"Mean size of the Shapley values of {len(self)} rows", []
        sizes = self.values[0] if len(self) == 1 else self.values.abs().mean(dim=0)  # (N, O)
        ranked = sizes.abs().sum(dim=1).argsort(descending=True).tolist()
        records = [
            {
                "column": self.names[n],
                **({} if self.data is None or len(self) > 1 else {"value": _short(self.data[0, n])}),
                **dict(zip(self.outputs, sizes[n].tolist(), strict=True)),
            }
            for n in ranked
        ]
        return rich_table(title, records, "; ".join([*notes, *_distilled(self.error)]))

    def to_shap(self) -> Any:
        """A ``shap.Explanation`` of the same values, for shap's plots."""
        from restt.explain.others import as_shap

        return as_shap(self)

    def to_shapiq(self, row: int = 0, output: int = 0) -> Any:
        """The ``shapiq.InteractionValues`` of one row and output."""
        from restt.explain.others import as_shapiq

        return as_shapiq(self, row, output)

    def plot(self, kind: str = "waterfall", *, output: int = 0, axes: Any = None, **options: Any) -> Any:
        """Draw on new axes or those given, which are returned.

        ``"waterfall"`` (option ``row``), ``"beeswarm"``, ``"orders"``, or ``"pixels"`` (options ``shape``, ``row``) for
        columns that are the pixels of an image.
        """
        from restt.explain import plots

        drawings = {
            "waterfall": plots.waterfall,
            "beeswarm": plots.beeswarm,
            "orders": plots.order_bars,
            "pixels": plots.pixel_map,
        }
        return _drawing(drawings, kind)(self, output, axes, **options)


@dataclass(frozen=True, eq=False)
class GlobalExplanation:
    """What the model has learned: shares of the variance, the largest interactions, and the shape of any effect."""

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

    def effect(self, columns: Any, grid: Any = None) -> Effect:
        """The effect of a column or a pair, see :func:`restt.explain.effect`."""
        return effect(self.model, columns, self.background, grid)

    def to_frame(self) -> Any:
        """The columns' shares of the variance; ``interactions.to_frame()`` has the terms."""
        return self.sobol.to_frame()

    def __rich__(self) -> Any:
        from rich.console import Group

        return Group(self.sobol.__rich__(), self.interactions.__rich__(), *_distilled(self.error))

    def plot(self, kind: str = "columns", *, output: int = 0, axes: Any = None, **options: Any) -> Any:
        """Draw on new axes or those given, which are returned.

        ``"columns"`` (first and total shares), ``"orders"``, ``"heat_map"`` of pairs, ``"network"`` of the largest
        interactions, or ``"effect"`` (option ``columns``).
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
    """The Shapley values and order spectrum of each row, exact.

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
        values.cpu(),
        subject.decide(means[None])[0].cpu(),
        subject.decide(vectors).cpu(),
        spectrum_of(subject, vectors, means, highest).cpu(),
        _rows_as_given(subject, x),
        subject.error,
    )


def explain_global(
    model: Any, background: Any = None, k: int = TERMS, max_order: int | None = None
) -> GlobalExplanation:
    """Sobol indices, the largest interactions, and effects on demand; exact under independent columns.

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


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
