"""The shape of a column's effect, or of a pair's, on the columns' own scale."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from restt.explain.links import Link, Scaled, link_of, probability_deviations, term_deviations
from restt.explain.subject import Subject
from restt.explain.tables import data_frame, records_of


@dataclass(frozen=True, eq=False, repr=False)
class Effect(Scaled):
    """A main effect's curve or a pair's surface on a grid of values.

    ``values`` is (G, O), for a pair (G, H, O); ``spread``, of the same shape, its standard deviation over what
    ``spread_over`` says: the ``"posterior"`` given the rows of the fit, the ``"members"`` (0 for one), or ``"none"`` of
    a ResTTClassifier without Gaussian processes (0). The grid of a column of categories holds its levels; a missing
    value is NaN. :func:`effect` makes it on the latent scale, ``on`` gives it in y's units: what adding it changes in
    the prediction of the mean row.
    """

    columns: tuple[int, ...]
    names: tuple[str, ...]
    outputs: tuple[str, ...]
    grids: tuple[np.ndarray, ...]
    values: Tensor
    spread: Tensor
    spread_over: str
    base: Tensor  # (O,): the mean row's prediction, on the latent scale
    subject: Subject
    means: Tensor  # (N, I) of absent sites
    points: dict[int, Tensor]  # site -> (ΠG, I), centred: of every point of the grid
    link: Link | None
    scale: str = "latent"
    latent: Effect | None = None

    def _in_units(self, link: Link) -> Effect:
        """g(base + effect) - g(base), g the link to y; its spread is that of the effect times the link's slopes."""
        base = self.base.cpu().numpy()
        moved = base + self.values.cpu().numpy()
        slopes = link.slopes(moved)
        values, by_point = self.values.flatten(0, -2), slopes.reshape(-1, *slopes.shape[-2:])
        spread = probability_deviations(self.subject, self.means, self.points, values, by_point)
        if spread is None:  # predictions depend on a latent value each, or on independent ones
            spread = torch.from_numpy(np.sqrt(slopes**2 @ (self.spread.cpu().numpy() ** 2)[..., None])[..., 0])
        return replace(
            self,
            outputs=link.outputs(self.outputs),
            values=torch.from_numpy(link(moved) - link(base[None])[0]).to(self.values),
            spread=spread.to(self.spread).view_as(self.spread),
            scale="y",
            latent=self,
        )

    def to_frame(self, scale: str | None = None) -> Any:
        """One row per point of the grid and output, in y's units unless ``scale="latent"``."""
        shown = self.on(scale)
        places = list(np.ndindex(*shown.values.shape[:-1]))
        labels = {
            name: [np.asarray(grid, dtype=object)[place[axis]] for place in places]
            for axis, (name, grid) in enumerate(zip(shown.names, shown.grids, strict=True))
        }
        numbers = {"effect": shown.values.flatten(0, -2), "spread": shown.spread.flatten(0, -2)}
        return data_frame(records_of(labels, shown.outputs, numbers), scale=shown.scale)

    def __repr__(self) -> str:
        on, shape = ", ".join(map(self.measured, range(len(self.outputs)))), tuple(self.values.shape[:-1])
        return f"Effect of {' × '.join(self.names)} on {on}, scale={self.scale!r}, at {shape} points"

    def plot(self, output: int = 0, axes: Any = None, scale: str | None = None) -> Any:
        """The curve or surface, in y's units unless ``scale="latent"``, on new axes or those given; returns them."""
        from restt.explain.plots import effect_curve, effect_surface

        draw = effect_curve if len(self.columns) == 1 else effect_surface
        return draw(self.on(scale), output, axes)


@torch.no_grad()
def effect(model: Any, columns: Any, background: Any = None, grid: Any = None) -> Effect:
    """A column's main effect, or the pure interaction of two columns, exactly as the model has it.

    It is the centred (ANOVA) term of the column or pair: what they add to the average prediction when all others are
    averaged, less the two main effects for a pair. Averaged over the background it is zero. Numbers are on the latent
    scale; :meth:`Effect.on` gives them in y's units, in which tables and pictures show them.

    Its spread is for a model in closed form the posterior standard deviation of the same term, for a model trained by
    gradients the standard deviation over its members: how much the initial weights matter, not what rows leave open.

    Parameters
    ----------
    model : restt.ResTT or fitted estimator
    columns : one column or two, by name or number; sites for a module
    background : table, or site vectors (M, N, I) for a module
        An estimator's is by default the rows of its fit.
    grid : values of the column, for a pair two lists of them, optional
        By default 65 even ones and the knots for numbers, the levels for categories; for a module site vectors (G, I),
        by default the background's.

    Examples
    --------
    >>> import numpy as np
    >>> from restt import ResTTNetRegressor
    >>> X = np.random.default_rng(0).random((80, 3))
    >>> model = ResTTNetRegressor(epochs=20, random_state=0).fit(X, X[:, 0])
    >>> curve = effect(model, 0)
    >>> curve.names, curve.values.shape[1], bool(curve.grids[0][0] == X[:, 0].min())
    (('x0',), 1, True)
    >>> values = effect(model, 0, X, grid=X[:, 0]).values
    >>> bool(values.mean().abs() < 1e-10)
    True
    """
    subject = Subject.of(model)
    chosen = subject.sites_of(columns)
    if len(chosen) not in (1, 2):
        raise ValueError(f"columns must be one or two, got {len(chosen)}")
    means = subject.means(background)
    sides = [grid] if len(chosen) == 1 else [None, None] if grid is None else list(grid)
    if len(sides) != len(chosen):
        raise ValueError(f"grid must hold two lists of values for a pair of columns, got {len(sides)}")
    grids = [subject.grid(site, values, background) for site, values in zip(chosen, sides, strict=True)]
    sizes = [len(vectors) for _, vectors in grids]
    places = torch.meshgrid(*map(torch.arange, sizes), indexing="ij")  # of every point of the grid, by site
    points = {
        site: (vectors - means[site])[place.flatten()]
        for site, (_, vectors), place in zip(chosen, grids, places, strict=True)
    }
    members = subject.train(means).term(points)  # (S, ΠG, D)
    spread, over = term_deviations(subject, means, points, members.mean(dim=0)), "posterior"
    if spread is None:
        spread, over = members.std(dim=0, correction=0), "members"
        if hasattr(subject.estimator, "effort") and hasattr(subject.estimator, "predict_proba"):
            # Runs of a ResTTClassifier are parts of one average.
            spread, over = torch.zeros_like(spread), "none"
    return Effect(
        tuple(subject.columns[site] for site in chosen),
        tuple(subject.names[subject.columns[site]] for site in chosen),
        subject.outputs,
        tuple(grid for grid, _ in grids),
        members.mean(dim=0).unflatten(0, sizes),
        spread.unflatten(0, sizes),
        over,
        subject.decide(means[None])[0],
        subject,
        means,
        points,
        link_of(subject.estimator),
    )
