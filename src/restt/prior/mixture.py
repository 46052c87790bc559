"""Averaged Gaussian processes, each conditioned through the same inducing rows, and the variance of their terms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from restt.prior.gp import Process, Product, product_covariance
from restt.prior.kernel import Kernel
from restt.prior.pairs import Rows
from restt.prior.sites import rows_of

_PRODUCTS_AT_ONCE = 64


class Mixture:
    """Members with a root of the variance that inducing rows take away, and weights of these rows in the mean."""

    kernel: Kernel
    weights: np.ndarray  # (S,)
    numbers: np.ndarray  # (M, C): inducing rows
    share: float = 1.0  # of the members in the average; the rest is a function without a posterior

    @cached_property
    def inducing(self) -> Rows:
        """The inducing rows as states and shares."""
        return rows_of(self.kernel.sites, self.numbers)

    @property
    def members(self) -> Iterator[tuple[float, Process, Tensor, Tensor]]:
        """Weight, process, root (R, M) and weights (M, O) of the mean of each member."""
        raise NotImplementedError

    @torch.no_grad()
    def product_deviations(
        self,
        products: Product,  # C of (G, I_n)
        values: Tensor | None = None,  # (G,)
        slopes: Tensor | None = None,  # (G, H)
    ) -> Tensor:  # (G,)
        """Posterior standard deviation of products of site vectors, such as centred terms, on the members' scale.

        ``values`` are those of the average, read where it has other parts than members. Of a posterior of H functions
        that are independent before rows are seen, such as the contrasts of classes, it is that of their sum times
        ``slopes``.
        """
        inducing, parts = self.kernel.vectors(self.inducing), []
        for start in range(0, len(products[0]), _PRODUCTS_AT_ONCE):
            part = slice(start, start + _PRODUCTS_AT_ONCE)
            some = [vectors[part] for vectors in products]
            within, centres = torch.zeros(len(some[0]), dtype=torch.float64), []
            for weight, process, root, mean in self.members:
                cross = product_covariance(process, inducing, some)  # (M, G)
                variance = product_covariance(process, some, some).diagonal()
                if slopes is not None:
                    cross = (cross[:, None] * slopes[part].T).flatten(0, 1)
                    variance = variance * slopes[part].square().sum(1)
                within += weight * (variance - (root @ cross).square().sum(0)).clamp(min=0)
                centres.append(cross.T @ mean)
            centre = None if values is None else values[part]
            parts.append((within + self.disagreement(centres, centre)).sqrt())
        return torch.cat(parts)

    def disagreement(self, means: Sequence[Tensor], centre: Tensor | None = None) -> Tensor:  # S of (B, O), (B,)
        """Variance of the means of members (B,); of an average with other parts, whose mean is ``centre``, theirs too.

        With the mean a of members of share s, that of the other parts is (centre - s·a)/(1 - s).
        """
        found = between(means, self.weights)
        if self.share == 1 or centre is None:
            return found
        middle = torch.stack(list(means), -1) @ torch.from_numpy(self.weights)
        away = (middle - centre[:, None]).square().mean(1)
        return self.share * (found + away / (1 - self.share))


@dataclass(frozen=True, eq=False)
class Conditioned(Mixture):
    """Members that are given with their roots and means."""

    kernel: Kernel
    weights: np.ndarray
    numbers: np.ndarray
    processes: Sequence[Process]
    roots: Sequence[Tensor]  # S of (R, M)
    means: Sequence[Any]  # S of (M, O); None of a member of which only the covariance counts
    share: float = 1.0

    @property
    def members(self) -> Iterator[tuple[float, Process, Tensor, Any]]:
        """Weight, process, root and weights of the mean of each member."""
        return zip(self.weights.tolist(), self.processes, self.roots, self.means, strict=True)


def between(means: Sequence[Tensor], weights: np.ndarray) -> Tensor:  # S of (B, O), (S,) -> (B,)
    """Variance of the members' means."""
    stack, share = torch.stack(list(means), -1), torch.from_numpy(weights).to(means[0])
    return ((stack - (stack @ share)[..., None]).square() @ share).mean(1)
