"""A tree ensemble as something that all of restt.explain reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.special import beta
from torch import Tensor

from restt._common.errors import shown
from restt.diagonal import DiagonalTT
from restt.explain.columns import OTHER, grid_values
from restt.explain.products import Products
from restt.explain.subject import Subject
from restt.explain.trees.boxes import BoxTrain, Column, boxes_of, states_of
from restt.explain.trees.reader import Ensemble

# Columns of a box whose pattern fits into one integer.
_MOST = 62


@dataclass(frozen=True, eq=False, repr=False)
class Trees(Subject):
    """A tree ensemble as an exact train: one product per distinct leaf box, one site per column that a split reads.

    Made by :func:`restt.explain.from_trees`, read by every function of :mod:`restt.explain` with tables as the model
    takes them. All of them need a ``background``: trees do not keep the rows of their fit. A site vector is one-hot in
    the states of a column.

    Attributes
    ----------
    library : str
        Where the model came from.
    names, outputs : tuple of str
        Of the columns, and of what is explained.
    scale : {"y", "raw score", "probability"}
        What outputs are: y's units for regression without a link, the margin for boosted classes or a log link, and
        probabilities for forests.
    """

    module: Products
    estimator: Ensemble
    states: tuple[Column, ...] = ()

    @classmethod
    def read(cls, ensemble: Ensemble) -> Trees:
        """The trees of a library's model."""
        states = states_of(ensemble.trees, len(ensemble.names))
        sites = tuple(sorted({int(n) for tree in ensemble.trees for n in tree.column[tree.column >= 0]})) or (0,)
        boxes = boxes_of(ensemble.trees, states, sites, ensemble.constant)
        eye = torch.eye(len(ensemble.outputs), dtype=torch.float64)
        return cls(boxes, sites, ensemble.names, ensemble.outputs, eye, 0 * eye[0], ensemble, states=states)

    @property
    def library(self) -> str:
        """Name of the library that the model is of."""
        return self.estimator.library

    @property
    def scale(self) -> str:
        """Name of the scale of the outputs."""
        return self.estimator.scale

    def __repr__(self) -> str:
        boxes = sum(len(group.site) for group in self.module.groups)
        outputs = ", ".join(self.outputs)
        return (
            f"Trees of {self.library}: {len(self.estimator.trees)} trees, {boxes} distinct boxes of up to "
            f"{self.module.degree} of {self.sites} columns with up to {self.module.feature_dim} states, "
            f"{self.scale if self.scale == outputs else f'{self.scale} of {outputs}'}"
        )

    def predict(self, X: Any) -> np.ndarray:  # (B, D)
        """Evaluate the boxes: the model's own prediction on the scale of ``scale``."""
        with torch.no_grad():
            return self.decide(self.vectors(X)).numpy()

    def to_module(self) -> DiagonalTT:
        """The ensemble as a residual train with diagonal cores, on one-hot vectors of each column's states."""
        tables, codes, constant = [], [], self.module.constant
        for n, (sets, start) in enumerate(zip(self.module.lines, self.module.starts, strict=True)):
            every = torch.arange(len(sets))
            tables.append(torch.cat([torch.ones(1, sets.width).double(), sets.members(every)])[None])
            # Vector 0 is that of a box without a set in this column; without a split there is one box of weight 0.
            codes.append(torch.cat([g.at(n, every + 1, start) for g in self.module.groups] or [torch.zeros(1).long()]))
        weights = torch.cat([g.weights for g in self.module.groups] or [torch.zeros_like(constant)[None]])
        code = torch.stack(codes, 1)
        return DiagonalTT(tables, code, torch.zeros(code.shape).double(), weights[None], constant=constant)

    def vectors(self, x: Any, name: str = "x") -> Tensor:  # (B, N, I)
        """One-hot vectors of a table's states."""
        numbers = self.estimator.numbers(x)
        if numbers.ndim != 2 or numbers.shape[1] != len(self.names):
            raise ValueError(f"{name} must be a table of {len(self.names)} columns, got {shown(x)}")
        if not len(numbers):
            raise ValueError(f"{name} must have at least one row, got none")
        states = np.stack([self.states[c].states(numbers[:, c]) for c in self.columns], 1)
        vectors = torch.zeros(*states.shape, self.module.feature_dim, dtype=torch.float64)
        return vectors.scatter_(2, torch.from_numpy(states)[..., None], 1.0)

    def means(self, background: Any, zero: bool = False) -> Tensor:  # (N, I)
        """Shares of the background's rows in each state."""
        if background is None:
            raise ValueError("background must be given: trees do not keep the rows of their fit; pass a table of rows")
        return self.vectors(background, "background").mean(dim=0)

    def moments(self, background: Any) -> tuple[Tensor, None]:
        """Means of the states, from which their covariances follow."""
        return self.means(background), None

    def train(self, means: Tensor) -> BoxTrain:
        """The boxes, centred."""
        return BoxTrain(self.module, means)

    def path_slopes(self, starts: Tensor, way: Tensor, nodes: Tensor, weights: Tensor) -> Tensor:  # (B, N, D)
        """Weighted derivatives along a line, box by box."""
        return self.module.path_slopes(starts, way, nodes, weights)

    def grid(self, site: int, given: Any, background: Any) -> tuple[np.ndarray, Tensor]:  # (G,), (G, I)
        """The values of a column, those given or both ends of every bin, and their site vectors."""
        column, levels = self.states[self.columns[site]], self.estimator.levels.get(self.columns[site])
        if given is None:
            values, states = _all_values(column, levels)
        else:
            values, codes = grid_values(given, levels)
            states = column.states(codes)
        return values, torch.eye(self.module.feature_dim, dtype=torch.float64)[torch.from_numpy(states)]

    def labels(self, x: Any) -> np.ndarray:  # (B, C) object
        """A table's values as a reader knows them."""
        numbers = self.estimator.numbers(x)
        labels = numbers.astype(object)
        for column, names in self.estimator.levels.items():
            labels[:, column] = [_label(names, code) for code in numbers[:, column].tolist()]
        return labels

    def against_rows(self, vectors: Tensor, rows: Tensor) -> Tensor:  # (B, N, I), (M, N, I) -> (B, N, D)
        """The mean over background rows of the Shapley values of the games between them and each row.

        Of one box, let P be its columns where only x is inside the set and Q those where only the background's row is.
        If some column has neither the game is 0 throughout; else φ is (p-1)! q!/(p+q)! in P and -p! (q-1)!/(p+q)! in
        Q. A box sees of a row only which of its few columns are inside, so rows that it cannot tell apart are counted.
        """
        inside, there = (self.module.seen(each).numpy() > 0.5 for each in (vectors, rows))  # (L, B), (L, M)
        values = np.zeros((self.module.sites, len(vectors), len(self.outputs)))  # (N, B, D)
        for group in self.module.groups:
            size = group.site.shape[1]
            if size > _MOST:
                raise ValueError(f"a leaf constrains {size} columns, more than the {_MOST} of background_mode='joint'")
            bits = np.int64(1) << np.arange(size)
            sites, weights = group.site.numpy(), group.weights.numpy()
            for number, line in enumerate(group.line.numpy()):
                ours, place = np.unique(bits @ inside[line], return_inverse=True)  # (P,), (B,)
                theirs, counts = np.unique(bits @ there[line], return_counts=True)  # (Q,)
                own = _between(ours, theirs, counts / len(rows), size)  # (P, d)
                values[sites[number]] += own.T[:, place, None] * weights[number]
        return torch.from_numpy(values.transpose(1, 0, 2).copy())


def _label(levels: list[Any], code: float) -> Any:
    return np.nan if code != code else levels[int(code)] if 0 <= code < len(levels) else OTHER


def _all_values(column: Column, levels: list[Any] | None) -> tuple[np.ndarray, np.ndarray]:
    """Every state: of a column of numbers at both ends of its bin, of which the outer ones are a twentieth wide."""
    if column.categorical:
        codes = column.cuts.tolist()
        names = codes if levels is None else [_label(levels, code) for code in codes]
        return np.array([*names, OTHER, np.nan], dtype=object), np.arange(column.width)
    # A border at float32's end parts missing values from numbers.
    cuts = column.cuts[np.abs(column.cuts) < np.finfo(np.float32).max]
    values = np.zeros(1)
    if len(cuts):
        margin = 0.05 * (cuts[-1] - cuts[0]) or 1.0
        ends = np.stack([cuts, np.nextafter(cuts, np.inf)], 1).ravel()
        values = np.concatenate([cuts[:1] - margin, ends, cuts[-1:] + margin])
    return values, column.states(values)


def _between(
    ours: np.ndarray,  # (P,) patterns of columns inside
    theirs: np.ndarray,  # (Q,)
    shares: np.ndarray,  # (Q,) of the background
    size: int,
) -> np.ndarray:  # (P, d)
    full = (np.int64(1) << size) - 1
    ours_bits, theirs_bits = ((bits[:, None] >> np.arange(size) & 1).astype(np.float64) for bits in (ours, theirs))
    alone = ours_bits @ (1 - theirs_bits).T, (1 - ours_bits) @ theirs_bits.T
    counts = tuple(part.astype(np.int64) for part in alone)
    sizes = np.arange(size + 1)
    gains = beta(sizes[:, None], sizes + 1)  # (p-1)! q!/(p+q)!
    gains[0] = 0.0
    possible = np.where((ours[:, None] | theirs) == full, shares, 0.0)
    gain, loss = possible * gains[counts], possible * gains[counts[::-1]]
    # A column inside of ours alone gains, of theirs alone loses; summed over patterns of the background.
    gained: np.ndarray = ours_bits * (gain @ (1 - theirs_bits)) - (1 - ours_bits) * (loss @ theirs_bits)
    return gained
