"""A tree ensemble as something that all of restt.explain reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from restt._common.errors import shown
from restt.diagonal import DiagonalTT
from restt.explain.subject import Subject
from restt.explain.trees.box_train import BoxTrain
from restt.explain.trees.boxes import Boxes, Column, Tree, boxes_of, states_of
from restt.explain.trees.joint import against_rows


@dataclass(frozen=True, eq=False)
class Ensemble:
    """The trees of a library's model, as its reader returns them."""

    library: str
    names: tuple[str, ...]  # C
    outputs: tuple[str, ...]  # D
    scale: str  # what the outputs are: "y", "raw score", "probability"
    trees: Sequence[Tree]
    constant: np.ndarray  # (D,)
    numbers: Callable[[Any], np.ndarray]  # table -> (B, C) as the splits compare them, NaN where missing
    categories: tuple[int, ...] = ()
    level_names: dict[int, list[Any]] | None = None  # by column: what a code stands for


class Trees:
    """A tree ensemble as an exact train: one state per distinct leaf box, one site per column that a split reads.

    Made by :func:`restt.explain.from_trees`, read by every function of :mod:`restt.explain` with tables as the model
    takes them. All of them need a ``background``: trees do not keep the rows of their fit.

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

    def __init__(self, ensemble: Ensemble) -> None:
        self.library, self.names, self.outputs = ensemble.library, ensemble.names, ensemble.outputs
        self.scale = ensemble.scale
        self._numbers, self._level_names = ensemble.numbers, ensemble.level_names or {}
        self._columns = states_of(ensemble.trees, len(self.names), ensemble.categories)
        read = {int(column) for tree in ensemble.trees for column in tree.column[tree.column >= 0]}
        self._sites = tuple(sorted(read)) or (0,)
        self._boxes = boxes_of(ensemble.trees, self._columns, self._sites, ensemble.constant)
        self._trees = len(ensemble.trees)

    def __repr__(self) -> str:
        widest = max(self._columns[column].width for column in self._sites)
        return (
            f"Trees of {self.library}: {self._trees} trees, {self._boxes.count} distinct boxes of up to "
            f"{self._boxes.degree} of {len(self._sites)} columns with up to {widest} states, {self.scale} of "
            f"{', '.join(self.outputs)}"
        )

    def predict(self, X: Any) -> np.ndarray:  # (B, D)
        """Evaluate the boxes: the model's own prediction on the scale of ``scale``."""
        subject = self.subject()
        with torch.no_grad():
            return subject.decide(subject.vectors(X)).numpy()

    def subject(self) -> TreeSubject:
        """The boxes as explanations read them."""
        sites = _Sites(len(self._boxes.sets), max(sets.width for sets in self._boxes.sets), torch.device("cpu"))
        eye = torch.eye(len(self.outputs), dtype=torch.float64)
        parts = (sites, self._sites, self.names, self.outputs, eye, eye.new_zeros(len(eye)))
        return TreeSubject(*parts, trees=self, boxes=self._boxes)  # type: ignore[arg-type]

    def states(self, X: Any, name: str = "x") -> np.ndarray:  # (B, N)
        """The state of each column that a split reads."""
        numbers = self._numbers(X)
        if numbers.ndim != 2 or numbers.shape[1] != len(self.names):
            raise ValueError(f"{name} must be a table of {len(self.names)} columns, got {shown(X)}")
        return np.stack([self._columns[c].states(numbers[:, c]) for c in self._sites], 1)

    def to_module(self) -> DiagonalTT:
        """The ensemble as a residual train with diagonal cores, on one-hot vectors of each column's states."""
        sites = len(self._boxes.sets)
        tables, codes = [], []
        line = torch.cat(
            [torch.full((len(g.site), sites), -1).scatter(1, g.site, g.line) for g in self._boxes.groups]
            or [torch.zeros(0, sites, dtype=torch.int64)]
        )
        for n, (sets, start) in enumerate(zip(self._boxes.sets, self._boxes.starts, strict=True)):
            members = sets.members(torch.arange(len(sets.low)))
            tables.append(torch.cat([torch.ones(1, sets.width, dtype=torch.float64), members])[None])
            codes.append(torch.where(line[:, n] >= 0, line[:, n] - start + 1, 0))
        weights = torch.cat([g.weights for g in self._boxes.groups] or [self._boxes.constant[None][:0]])
        code = torch.stack(codes, 1)
        if not len(code):  # a model without a split: one product of weight 0
            code, weights = torch.zeros(1, sites, dtype=torch.int64), torch.zeros_like(self._boxes.constant)[None]
        return DiagonalTT(tables, code, code.double() * 0, weights[None], constant=self._boxes.constant)

    def labels(self, X: Any) -> np.ndarray:  # (B, C) object
        """A table's values as a reader knows them."""
        numbers = self._numbers(X)
        found = numbers.astype(object)
        for column, names in self._level_names.items():
            found[:, column] = [self._label(names, code) for code in numbers[:, column].tolist()]
        return found

    @staticmethod
    def _label(names: list[Any], code: float) -> Any:
        known = code == code and 0 <= code < len(names)
        return names[int(code)] if known else np.nan if code != code else "other"

    def grid(self, site: int, given: Any) -> tuple[np.ndarray, np.ndarray]:  # (G,), (G,) states
        """The values of a column, those given or both ends of every bin, and their states."""
        index = self._sites[site]
        column, levels = self._columns[index], self._level_names.get(index)
        if given is None:
            return _all_values(column, levels)
        listed = list(given) if isinstance(given, Iterable) and not isinstance(given, str) else [given]
        if levels is not None:
            unknown = [value for value in listed if value == value and value not in levels]
            if unknown:
                raise ValueError(f"grid has {shown(unknown[0])}, which is not one of the levels {shown(levels)}")
            codes = np.array([levels.index(value) if value == value else np.nan for value in listed], dtype=np.float64)
            return np.array(listed, dtype=object), column.states(codes)
        values = np.array(listed, dtype=np.float64)
        return values, column.states(values)


def _all_values(column: Column, levels: list[Any] | None) -> tuple[np.ndarray, np.ndarray]:
    """Every state: of a column of numbers at both ends of its bin, of which the outer ones are a twentieth wide."""
    if column.thresholds is None:
        assert column.codes is not None
        codes = column.codes
        names = codes.tolist() if levels is None else [Trees._label(levels, code) for code in codes.tolist()]
        return np.array([*names, "other", np.nan], dtype=object), np.arange(column.width)
    # A border at float32's end parts missing values from numbers.
    cuts = column.thresholds[np.abs(column.thresholds) < np.finfo(np.float32).max]
    if not len(cuts):
        return np.zeros(1), column.states(np.zeros(1))
    margin = 0.05 * (cuts[-1] - cuts[0]) or 1.0
    values = np.concatenate([[cuts[0] - margin], np.stack([cuts, np.nextafter(cuts, np.inf)], 1).ravel()])
    values = np.append(values, cuts[-1] + margin)
    return values, column.states(values)


class _Sites(NamedTuple):
    """The sizes of a module that explanations ask for."""

    sites: int
    feature_dim: int
    device: torch.device


@dataclass(frozen=True, eq=False, kw_only=True)
class TreeSubject(Subject):
    """Boxes in the place of a module. A site vector is the one-hot vector of a column's state."""

    trees: Trees
    boxes: Boxes

    @cached_property
    def degree(self) -> int:
        """The most columns that one box constrains."""
        return self.boxes.degree

    def vectors(self, x: Any, name: str = "x") -> Tensor:  # (B, N, I)
        """One-hot vectors of a table's states."""
        states = torch.from_numpy(self.trees.states(x, name))
        if not len(states):
            raise ValueError(f"{name} must have at least one row, got none")
        vectors = torch.zeros(*states.shape, self.module.feature_dim, dtype=torch.float64)
        return vectors.scatter_(2, states[..., None], 1.0)

    def means(self, background: Any) -> Tensor:  # (N, I)
        """Shares of the background's rows in each state."""
        if background is None:
            raise ValueError("background must be given: trees do not keep the rows of their fit; pass a table of rows")
        return self.vectors(background, "background").mean(dim=0)

    def moments(self, background: Any) -> tuple[Tensor, Tensor]:
        """Means of the states, twice: their covariances follow from them."""
        means = self.means(background)
        return means, means

    def train(self, means: Tensor | None) -> BoxTrain:  # type: ignore[override]
        """The boxes, centred."""
        return BoxTrain(self.boxes, means)

    def decide(self, x: Tensor) -> Tensor:  # (B, N, I) -> (B, D)
        """The sum of the boxes at site vectors."""
        return self.boxes.values(x)

    def require_module(self) -> Subject:
        """Refuse what needs a module."""
        raise TypeError("model must be a restt module or estimator here, got Trees: pass its to_module()")

    def path_slopes(self, starts: Tensor, way: Tensor, nodes: Tensor, weights: Tensor) -> Tensor:  # (B, N, D)
        """Weighted derivatives along a line, box by box."""
        return self.boxes.path_slopes(starts, way, nodes, weights)

    def against_rows(self, vectors: Tensor, rows: Tensor) -> Tensor:  # (B, N, I), (M, N, I) -> (B, N, D)
        """Shapley values averaged over the starts in ``rows``."""
        return against_rows(self.boxes, vectors, rows)

    def grid(self, site: int, values: Any) -> tuple[np.ndarray, Tensor]:  # (G,), (G, I)
        """Values of a column and their site vectors."""
        values, states = self.trees.grid(site, values)
        eye = torch.eye(self.module.feature_dim, dtype=torch.float64)
        return values, eye[torch.from_numpy(np.asarray(states))]

    def labels(self, x: Any) -> np.ndarray:  # (B, C) object
        """A table's values as a reader knows them."""
        return self.trees.labels(x)
