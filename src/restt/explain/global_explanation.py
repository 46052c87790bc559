"""Explanations of the whole model: shares of the variance, interactions, effects."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import Tensor

from restt._common.errors import check_choice
from restt.explain.effects import Effect, effect
from restt.explain.links import Link, link_of, measured
from restt.explain.local_explanation import ORDERS
from restt.explain.shares import SETTINGS, VarianceShares, variance_shares
from restt.explain.sobol import SobolIndices, TopInteractions, sobol_indices, top_interactions
from restt.explain.subject import Subject
from restt.explain.tables import Printed, Table

# The largest interactions listed by default, and the most columns in one.
TERMS, TERM_ORDER = 20, 4


@dataclass(frozen=True, eq=False, repr=False)
class GlobalExplanation(Printed):
    """Explanation of a whole model: shares of the variance, the largest interactions, and the shape of any effect.

    ``shares`` are of the rows as they are, ``sobol`` and ``interactions`` of independent columns, exact; all on the
    latent scale, on which the model adds up. Prints as one table of a dozen lines.
    """

    names: tuple[str, ...]
    outputs: tuple[str, ...]
    sobol: SobolIndices
    interactions: TopInteractions
    model: Any
    background: Any
    subject: Subject
    link: Link | None

    @property
    def scale(self) -> str:
        """The scale of the variance that is shared: ``"y"`` where it is the latent one too."""
        return "y" if self.link is not None and self.link.identical else "latent"

    @property
    def error(self) -> Tensor | None:  # (O,)
        """The error of a distilled model, see :class:`restt.explain.Distilled`; None for others."""
        return self.subject.error

    def measured(self, output: int) -> str:
        """The quantity whose variance is shared, for titles and axes."""
        return measured(self.link, self.scale, self.outputs[output])

    @cached_property
    def shares(self) -> VarianceShares | None:
        """Shares of the variance over the rows as they are; None for an estimator that keeps no rows without any."""
        if self.background is None and self.subject.posterior is None:
            return None
        return variance_shares(self.model, self.background, [term.columns for term in self.interactions.terms])

    def effect(self, columns: Any, grid: Any = None) -> Effect:
        """The effect of a column or a pair, see :func:`restt.explain.effect`."""
        return effect(self.model, columns, self.background, grid)

    def to_frame(self) -> Any:
        """The columns' shares of the variance; ``shares.to_frame()`` and ``interactions.to_frame()`` have the terms."""
        return self.sobol.to_frame()

    def _table(self) -> Table:
        """The largest terms of the first output, all others, and their sum."""
        shares, terms = self.shares, self.interactions.terms[: SETTINGS.terms]
        columns = {"term": [*(term.label for term in terms), "all other terms", "all"]}
        notes = []
        if shares is not None:
            listed = shares.of_terms[: len(terms), 0].tolist()
            whole = float(shares.of_terms[:, 0].sum() + shares.rest[0])
            columns["of the rows"] = _percents([*listed, whole - sum(listed), whole])
            notes.append(f"over {shares.rows} rows as they are")
            if shares.term_errors is not None:
                std, probability = (part[: len(terms), 0].tolist() for part in shares.term_errors)
                columns["±"] = [*_percents(std), "", ""]
                columns["P(> 1 %)"] = [*(f"{each:.2f}" for each in probability), "", ""]
                settings = shares.settings
                notes.append(f"± and P by {settings.draws} draws from the posterior, seed {settings.seed}")
        independent = [float(term.share[0]) for term in terms]
        whole = float(self.sobol.variance[0] > 0)
        columns["independent columns"] = _percents([*independent, whole - sum(independent), whole])
        proven = "proven complete" if self.interactions.complete else "not proven complete"
        notes.append(f"terms of largest variance under independent columns, {proven}")
        others = f"; {len(self.outputs) - 1} more outputs" if len(self.outputs) > 1 else ""
        title = f"Shares of the variance of {self.measured(0)}{others}"
        rows = [list(row) for row in zip(*columns.values(), strict=True)]
        return Table(title, list(columns), rows, "; ".join([*notes, *self.subject.notes]))

    def plot(self, kind: str = "columns", *, output: int = 0, axes: Any = None, **options: Any) -> Any:
        """Draw on new axes or those given, which are returned.

        ``"columns"`` (shares alone and in all), ``"orders"``, ``"network"`` of the largest interactions, or
        ``"effect"`` (option ``columns``). Terms that are not known to have more than one per cent of the variance are
        grey.
        """
        from restt.explain import plots

        check_choice("kind", kind, ("columns", "orders", "network", "effect"))
        if kind == "effect":
            if "columns" not in options:
                raise ValueError('columns must be given with kind "effect": one or two, by name or number')
            return self.effect(options.pop("columns")).plot(output, axes, **options)
        return getattr(plots, kind)(self, output, axes, **options)


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
    >>> explanation = explain_global(model, X)
    >>> sorted(term.label for term in explanation.interactions.terms[:3])
    ['x0', 'x0 × x2', 'x2']
    """
    subject = Subject.of(model)
    highest = min(subject.sites, TERM_ORDER) if max_order is None else max_order
    interactions = top_interactions(model, background, k, highest)
    sobol = sobol_indices(model, background, max_order=min(subject.sites, ORDERS))
    link = link_of(subject.estimator)
    return GlobalExplanation(subject.names, subject.outputs, sobol, interactions, model, background, subject, link)


def _percents(shares: list[float]) -> list[str]:
    return [f"{round(100 * share, 1) + 0.0:.1f} %" for share in shares]  # never -0.0
