"""A sum of boxes centred at means.

    f(x) = constant + Σ_j w_j Π_{n in box j} ( a_nj + v_nj ),      a = probability of the set, v = its indicator - a

A box constrains few columns, so every quantity costs boxes × columns in a box, whatever N. Rows and boxes go block by
block.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from restt.explain.trees.box_gram import BoxGram
from restt.explain.trees.boxes import Boxes


class BoxTrain:
    """Boxes centred at means (N, I); None for 0."""

    def __init__(self, boxes: Boxes, means: Tensor | None) -> None:
        self.boxes, self.sites = boxes, len(boxes.sets)
        widest = max(each.width for each in boxes.sets)
        self.means = boxes.constant.new_zeros(self.sites, widest) if means is None else means
        self.absent = boxes.lines(self.means[None])[:, 0]  # (L,)

    def spectrum(self, x: Tensor, highest: int) -> Tensor:  # (B, N, I), centred -> (B, highest+1, D)
        """The sum of all terms of each order."""
        found = x.new_zeros(len(x), highest + 1, len(self.boxes.constant))
        found[:, 0] += self.boxes.constant
        for rows in self.boxes.row_slices(len(x)):
            lines = self.boxes.lines(x[rows])
            for group in self.boxes.groups:
                for part in group.blocks(lines.shape[1] * (highest + 1)):
                    orders = [torch.ones_like(lines[part.line[:, 0]])]
                    for line in part.line.T:
                        present, absent, nothing = lines[line], self.absent[line, None], torch.zeros_like(lines[line])
                        kept = [order * absent for order in orders]
                        grown = [order * present for order in orders]
                        orders = [a + b for a, b in zip([*kept, nothing], [nothing, *grown], strict=True)]
                        orders = orders[: highest + 1]
                    for order, values in enumerate(orders):
                        found[rows, order] += values.T @ part.weights
        return found

    def term(self, points: Mapping[int, Tensor]) -> Tensor:  # site -> (B, I), centred -> (1, B, D)
        """The contribution of exactly these sites together; one row for the constant."""
        members, count = sorted(points), max(map(len, points.values()), default=1)
        found = self.absent.new_zeros(count, len(self.boxes.constant)) + (0 if members else self.boxes.constant)
        seen = {n: self.boxes.sets[n].mass(points[n][:, : self.boxes.sets[n].width]) for n in members}  # (M, B)
        for group in self.boxes.groups:
            inside = torch.isin(group.site, torch.tensor(members, dtype=torch.int64))
            kept = inside.sum(1) == len(members)
            if bool(kept.any()):
                site, line, inside = group.site[kept], group.line[kept], inside[kept]
                weights = group.weights[kept] * torch.where(inside, 1.0, self.absent[line]).prod(1, keepdim=True)
                values = self.absent.new_ones(len(weights), count)
                for n in members:
                    values = values * seen[n][(line * (site == n)).sum(1) - self.boxes.starts[n]]
                found += values.T @ weights
        return found[None]

    def moments(self, covariances: Tensor | None) -> BoxGram:
        """Variances under independent sites; the covariances of states follow from their means."""
        return BoxGram.of(self.boxes, self.means, self.absent)
