"""Variances of a sum of boxes over independent columns, from the probabilities of intersections of boxes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from restt.explain.gram import Gram
from restt.explain.trees.boxes import Boxes
from restt.explain.trees.overlaps import sweep


@dataclass(frozen=True, eq=False)
class BoxGram(Gram):
    """:class:`Gram` of indicators: E[factor factor'] is the probability of an intersection, so no features are held."""

    boxes: Boxes
    means: Tensor  # (N, I)
    line: Tensor  # (J, N) the set of a box in a column, -1 where it has none

    @classmethod
    def of(cls, boxes: Boxes, means: Tensor, absent: Tensor) -> BoxGram:  # (N, I), (L,)
        """Make the Gram matrices of boxes under these means."""
        sites = len(boxes.sets)
        parts = []
        for group in boxes.groups:
            parts.append(torch.full((len(group.site), sites), -1).scatter(1, group.site, group.line))
        line = torch.cat([*parts, torch.zeros(0, sites, dtype=torch.int64)])
        weights = torch.cat(
            [*(group.weights for group in boxes.groups), boxes.constant.new_zeros(0, len(boxes.constant))]
        )
        alone = torch.where(line >= 0, absent[line.clamp(min=0)], 1.0)
        return cls(weights, alone, [], boxes.constant, boxes, means, line)

    @property
    def sites(self) -> int:
        """The number of sites."""
        return self.line.shape[1]

    @cached_property
    def _swept(self) -> tuple[Tensor, Tensor, Tensor, Tensor] | None:
        if not self.boxes.groups:
            return None
        return sweep(self.boxes, self.means, self.boxes.lines(self.means[None])[:, 0])

    def variances(self, highest: int) -> tuple[Tensor, Tensor, Tensor]:  # (D,), (N, D), (highest+1, D)
        """The variance, that of all terms with each site, and that of all terms of each order; 0 for order 0."""
        if self._swept is None:
            return super().variances(highest)
        whole, totals, orders, _ = self._swept
        return (
            whole,
            totals,
            torch.nn.functional.pad(orders, (0, 0, 0, max(0, highest + 1 - len(orders))))[: highest + 1],
        )

    def containing(self) -> Tensor:  # (N, N, D)
        """The variance of all terms that contain both sites of each pair."""
        return super().containing() if self._swept is None else self._swept[3]

    def term(self, members: tuple[int, ...]) -> Tensor:  # (D,)
        """The variance of the term of these sites."""
        chosen = self._within(members)
        others = [n for n in range(self.sites) if n not in members]
        weights = self.weights[chosen] * self.absent[chosen][:, others].prod(1, keepdim=True)
        features = [self._features(n, chosen) for n in members]
        small = Gram(weights, weights.new_ones(len(chosen), len(members)), features, self.constant)
        return small.term(tuple(range(len(members))))

    def _within(self, members: tuple[int, ...]) -> Tensor:  # (J,) of boxes that constrain all members
        return (self.line[:, list(members)] >= 0).all(1).nonzero()[:, 0]

    def _features(self, site: int, chosen: Tensor) -> Tensor:  # (J, I)
        """Centred indicators over states, scaled such that their products sum to covariances."""
        sets, mean = self.boxes.sets[site], self.means[site]
        inside = sets.members(self.line[chosen, site] - self.boxes.starts[site])
        return (inside - self.absent[chosen, site, None]) * mean[: sets.width].clamp(min=0).sqrt()

    def cost(self, members: tuple[int, ...]) -> float:
        """About how many products :meth:`term` takes."""
        states = len(self._within(members))
        widths = [self.boxes.sets[n].width for n in members]
        size = float(torch.tensor(widths[:-1], dtype=torch.float64).prod())
        return states * (size * widths[-1] if size <= states else states * sum(width + 2 for width in widths))

    def _matrices(self, rows: slice, columns: slice) -> tuple[list[Tensor], list[Tensor]]:
        absent, present = [], []
        for n, (sets, start) in enumerate(zip(self.boxes.sets, self.boxes.starts, strict=True)):
            absent.append(torch.outer(self.absent[rows, n], self.absent[columns, n]))
            ours, theirs = self.line[rows, n], self.line[columns, n]
            here, there = (ours >= 0).nonzero()[:, 0], (theirs >= 0).nonzero()[:, 0]
            full = torch.zeros_like(absent[-1])
            if len(here) and len(there):
                both = sets.overlap(ours[here] - start, theirs[there] - start, self.means[n, : sets.width])
                full[here[:, None], there] = both - absent[-1][here[:, None], there]
            present.append(full)
        return absent, present
