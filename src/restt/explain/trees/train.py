"""A sum of boxes centred at means: what explanations of single rows are sums over.

    f(x) = constant + Σ_j w_j Π_{n in box j} ( a_nj + v_nj ),      a = probability of the set, v = its indicator - a

A box constrains few columns, so every quantity costs boxes × columns in a box, whatever N. Rows and boxes go block by
block.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from restt.explain.shapley import quadrature
from restt.explain.trees.boxes import Boxes, Group
from restt.explain.trees.gram import BoxGram

# Rows at once; fewer where there are many distinct sets.
_ROWS, _LINES = 256, 2**25


class BoxTrain:
    """Boxes centred at means (N, I); None for 0."""

    def __init__(self, boxes: Boxes, means: Tensor | None) -> None:
        self.boxes, self.sites = boxes, len(boxes.sets)
        widest = max(each.width for each in boxes.sets)
        self.means = boxes.constant.new_zeros(self.sites, widest) if means is None else means
        self.absent = boxes.lines(self.means[None])[:, 0]  # (L,)

    def _chunks(self, rows: int) -> Iterator[slice]:
        step = max(1, min(_ROWS, _LINES // max(1, len(self.absent))))
        return (slice(start, min(rows, start + step)) for start in range(0, rows, step))

    def shapley(self, way: Tensor) -> Tensor:  # (B, N, I), centred -> (B, N, D)
        """Shapley values: of one box ∫ v_n Π_{m≠n} (a_m + t v_m) dt, a polynomial in t."""
        found = way.new_zeros(len(way), self.sites, len(self.boxes.constant))
        for rows in self._chunks(len(way)):
            lines, total = self.boxes.lines(way[rows]), found[rows].transpose(0, 1)  # (L, B), (N, B, D)
            for group in self.boxes.groups:
                nodes, weights = quadrature(group.site.shape[1], way)
                for part in group.blocks(lines.shape[1]):
                    present = [lines[each] for each in part.line.T]  # d of (J, B)
                    slopes = _slopes(present, self._absent(part), nodes, weights)
                    for place, slope in enumerate(slopes):
                        self._add(total, part, place, slope)
        return found

    def _absent(self, part: Group) -> list[Tensor]:  # d of (J, 1)
        return [self.absent[each, None] for each in part.line.T]

    @staticmethod
    def _add(total: Tensor, part: Group, place: int, values: Tensor) -> None:  # (N, B, D), (J, B)
        """Add what boxes say of one of their columns to that column."""
        for d in range(total.shape[-1]):
            total[:, :, d].index_add_(0, part.site[:, place], values * part.weights[:, d, None])

    def spectrum(self, x: Tensor, highest: int) -> Tensor:  # (B, N, I), centred -> (B, highest+1, D)
        """The sum of all terms of each order."""
        found = x.new_zeros(len(x), highest + 1, len(self.boxes.constant))
        found[:, 0] += self.boxes.constant
        for rows in self._chunks(len(x)):
            lines = self.boxes.lines(x[rows])
            for group in self.boxes.groups:
                for part in group.blocks(lines.shape[1] * (highest + 1)):
                    orders = [torch.ones_like(lines[part.line[:, 0]])]
                    for each, absent in zip(part.line.T, self._absent(part), strict=True):
                        present = lines[each]
                        grown = [order * present for order in orders]
                        orders = [order * absent for order in orders] + [torch.zeros_like(present)]
                        orders = [a + b for a, b in zip(orders, [torch.zeros_like(present), *grown], strict=True)]
                        orders = orders[: highest + 1]
                    for order, values in enumerate(orders):
                        found[rows, order] += values.T @ part.weights
        return found

    def term(self, x: Tensor, members: set[int]) -> Tensor:  # (B, N, I), centred -> (B, D)
        """What exactly these sites contribute together."""
        found = x.new_zeros(len(x), len(self.boxes.constant)) + (0 if members else self.boxes.constant)
        for rows in self._chunks(len(x)):
            lines = self.boxes.lines(x[rows])
            for weights, chosen in self._containing(members):
                values = torch.ones(len(weights), lines.shape[1], dtype=x.dtype)
                for line in chosen.values():
                    values = values * lines[line]
                found[rows] += values.T @ weights
        return found

    def _containing(self, members: set[int]) -> Iterator[tuple[Tensor, dict[int, Tensor]]]:
        """Boxes that constrain all of the sites: weights with all others absent (J, D), and lines (J,) by site."""
        for group in self.boxes.groups:
            inside = torch.isin(group.site, torch.tensor(sorted(members), dtype=torch.int64))
            kept = inside.sum(1) == len(members)
            if not bool(kept.any()):
                continue
            site, line, inside = group.site[kept], group.line[kept], inside[kept]
            weights = group.weights[kept] * torch.where(inside, 1.0, self.absent[line]).prod(1, keepdim=True)
            yield weights, {n: (line * (site == n)).sum(1) for n in sorted(members)}

    def member_terms(self, points: dict[int, Tensor]) -> Tensor:  # site -> (G, I), centred -> (1, G, D), (1, G, H, D)
        """The term of one or two sites at all points of their grids."""
        sites, starts = list(points), self.boxes.starts
        total = torch.zeros((), dtype=torch.float64)
        for weights, chosen in self._containing(set(sites)):
            sets = self.boxes.sets
            values = [sets[n].mass(points[n][:, : sets[n].width])[chosen[n] - starts[n]] for n in sites]  # (J, G)
            if len(sites) == 1:
                total = total + values[0].T @ weights
            else:
                parts = [values[0].T @ (values[1] * each[:, None]) for each in weights.T]
                total = total + torch.stack(parts, -1)
        shape = [len(points[n]) for n in sites]
        return total.expand(1, *shape, len(self.boxes.constant))

    def pair_indices(
        self,
        way: Tensor,  # (B, N, I)
        nodes: Tensor,  # (K,)
        pair_weights: Tensor,  # (K,)
        single_weights: Tensor,  # (K,)
    ) -> Tensor:  # (B, N, N, D)
        """∫ of the second derivative along the way from the means, and on the diagonal that of the first."""
        found = way.new_zeros(len(way), self.sites * self.sites, len(self.boxes.constant))
        for rows in self._chunks(len(way)):
            lines, total = self.boxes.lines(way[rows]), found[rows].transpose(0, 1)
            for group in self.boxes.groups:
                for part in group.blocks(lines.shape[1]):
                    present, absent = [lines[each] for each in part.line.T], self._absent(part)
                    for n in range(len(present)):
                        (slope,) = _slopes(present, absent, nodes, single_weights, [n])
                        self._add_at(total, part, n, n, slope)
                        for m in range(n):
                            others = [p for p in range(len(present)) if p not in (n, m)]
                            both = present[n] * present[m] * _between(present, absent, others, nodes, pair_weights)
                            self._add_at(total, part, n, m, both)
                            self._add_at(total, part, m, n, both)
        return found.unflatten(1, (self.sites, self.sites))

    def _add_at(self, total: Tensor, part: Group, n: int, m: int, values: Tensor) -> None:  # (N², B, D), (J, B)
        places = part.site[:, n] * self.sites + part.site[:, m]
        for d in range(total.shape[-1]):
            total[:, :, d].index_add_(0, places, values * part.weights[:, d, None])

    def moments(self, covariances: Tensor | None) -> BoxGram:
        """Variances under independent sites; the covariances of states follow from their means."""
        return BoxGram.of(self.boxes, self.means, self.absent)


def _slopes(
    present: list[Tensor],  # d of (J, B)
    absent: list[Tensor],  # d of (J, 1)
    nodes: Tensor,  # (K,)
    weights: Tensor,  # (K,)
    places: list[int] | None = None,
) -> list[Tensor]:  # of (J, B)
    """Σ_k weight · v_n Π_{m≠n} (a_m + t v_m), for all n or those given."""
    if places is not None:
        others = [[m for m in range(len(present)) if m != n] for n in places]
        between = (_between(present, absent, each, nodes, weights) for each in others)
        return [present[n] * each for n, each in zip(places, between, strict=True)]
    totals = [torch.zeros_like(each) for each in present]
    for t, weight in zip(nodes.tolist(), weights.tolist(), strict=True):
        values = [torch.add(a, v, alpha=t) for a, v in zip(absent, present, strict=True)]
        after = [torch.full_like(present[0], weight)]
        for value in reversed(values[1:]):
            after.append(after[-1] * value)
        before = None
        for total, value, behind in zip(totals, values, reversed(after), strict=True):
            if before is None:
                total += behind
                before = value
            else:
                total.addcmul_(before, behind)
                before = before * value
    return [total.mul_(each) for total, each in zip(totals, present, strict=True)]


def _between(
    present: list[Tensor], absent: list[Tensor], chosen: list[int], nodes: Tensor, weights: Tensor
) -> Tensor:  # (J, B)
    """Σ_k weight · Π over the chosen of (a + t v)."""
    total = torch.zeros_like(present[0])
    for t, weight in zip(nodes.tolist(), weights.tolist(), strict=True):
        if weight != 0.0:
            product = torch.full_like(present[0], weight)
            for m in chosen:
                product *= torch.add(absent[m], present[m], alpha=t)
            total += product
    return total
