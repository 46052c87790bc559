"""A plain tensor train with batch norm after each contraction, for S runs side by side.

States are kept as (S, R, B): the S·R channels of all runs then lie as one torch batch norm wants them, and a site is
three operations, x ⊗ y, one batched product and the norm. Nothing here waits for the device, so that a training step
can be replayed as one CUDA graph.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from restt._errors import check_choice, check_int
from restt.baselines.shapes import with_runs
from restt.seeding import run_generator

STATISTICS = ("site", "shared")
# torch.nn.BatchNorm1d's.
MOMENTUM = 0.1
EPS = 1e-5

# From a contraction's number (from 0) and its state (S, R, B) to the state normalised.
Norm = Callable[[int, Tensor], Tensor]


class NormalisedTrain(nn.Module):
    """y(n) = BN[Σ_i x(n,i) y(n-1) W(n)_i] for n = 1 … N-1, and the last site maps to O outputs without a norm.

    ``statistics="site"``: each contraction has a norm of its own. ``"shared"``: one norm serves all, as if one
    ``torch.nn.BatchNorm1d`` were called N-1 times; its running statistics are then mostly those of the last sites.

    A training batch of a single row has no variance; it is normalised by the running statistics. Runs of
    :func:`restt.train.train` whose subsets differ in size see rows that only fill up the batch, and these count in the
    statistics: give such runs subsets of one size.

    >>> model = NormalisedTrain(sites=6, feature_dim=2, bond_dim=3, outputs=4, runs=2)
    >>> model(torch.rand(5, 6, 2)).shape, model.running_mean.shape
    (torch.Size([2, 5, 4]), torch.Size([2, 5, 3]))
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(
        self,
        sites: int,
        feature_dim: int,
        bond_dim: int,
        outputs: int,
        runs: int = 1,
        statistics: str = "site",
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.sites = check_int("sites", sites, minimum=2)
        self.feature_dim = check_int("feature_dim", feature_dim, minimum=1)
        self.bond_dim = bond = check_int("bond_dim", bond_dim, minimum=1)
        self.runs = check_int("runs", runs, minimum=1)
        self.statistics = check_choice("statistics", statistics, STATISTICS)
        width, outputs = self.feature_dim, check_int("outputs", outputs, minimum=1)
        # Output bond first: the gradients of all cores are then written where they belong without a transposition.
        self.first = nn.Parameter(torch.empty(runs, bond, width))
        self.cores = nn.Parameter(torch.empty(runs, sites - 2, bond, width, bond))
        self.last = nn.Parameter(torch.empty(runs, outputs, width, bond))
        norms = (runs, sites - 1, bond) if statistics == "site" else (runs, bond)
        self.gain = nn.Parameter(torch.ones(norms))
        self.shift = nn.Parameter(torch.zeros(norms))
        self.register_buffer("running_mean", torch.zeros(norms))
        self.register_buffer("running_var", torch.ones(norms))
        self._draw(seed)

    @torch.no_grad()
    def _draw(self, seed: int) -> None:
        """N(0, 1/r) throughout, run k from child k of the seed sequence."""
        for run in range(self.runs):
            generator = run_generator(seed, run)
            for parameter in (self.first, self.cores, self.last):
                parameter[run] = torch.randn(parameter.shape[1:], generator=generator) / self.bond_dim**0.5

    def forward(
        self,
        x: Tensor,  # (B, N, I) or (S, B, N, I)
    ) -> Tensor:  # (S, B, O)
        features = with_runs(x, self.runs, (self.sites, self.feature_dim)).permute(2, 0, 3, 1)
        # One copy here for all sites, each then contiguous.
        site = features.contiguous().unsqueeze(3).unbind(0)  # N of (S or 1, I, 1, B)
        cores = [core.flatten(2) for core in self.cores.unbind(1)]
        batch: list[tuple[Tensor, Tensor]] = []
        of_batch = self.training and features.shape[-1] > 1
        normalised = self._by_batch(batch) if of_batch else self._by_running()
        state = normalised(0, self.first @ site[0].squeeze(2))  # (S, R, B)
        for n, core in enumerate(cores, start=1):
            state = normalised(n, core @ _outer(site[n], state))
        if of_batch:
            self._update_running(batch, features.shape[-1])
        return (self.last.flatten(2) @ _outer(site[-1], state)).transpose(1, 2)

    def _by_batch(self, found: list[tuple[Tensor, Tensor]]) -> Norm:
        """The norm by the batch's own statistics; mean and 1/std of each site are appended to ``found``."""
        gains, shifts = self._by_site(self.gain), self._by_site(self.shift)

        def normalised(n: int, state: Tensor) -> Tensor:
            channels = state.flatten(0, 1).unsqueeze(0)  # (1, S·R, B)
            output, mean, inverse_std = torch.native_batch_norm(
                channels, gains[n], shifts[n], None, None, True, MOMENTUM, EPS
            )
            found.append((mean, inverse_std))
            return output.view_as(state)

        return normalised

    def _by_running(self) -> Norm:
        """The norm by the running statistics, one multiplication and addition."""
        gain = self.gain * (self.running_var + EPS).rsqrt()
        shift = self.shift - self.running_mean * gain
        gains, shifts = ([part.view(self.runs, -1, 1) for part in self._by_site(values)] for values in (gain, shift))
        return lambda n, state: torch.addcmul(shifts[n], state, gains[n])

    def _by_site(self, values: Tensor) -> list[Tensor]:  # N-1 of (S·R,)
        if self.statistics == "shared":
            return [values.flatten()] * (self.sites - 1)
        return list(values.transpose(0, 1).flatten(1).unbind(0))

    @torch.no_grad()
    def _update_running(self, batch: list[tuple[Tensor, Tensor]], rows: int) -> None:
        """Move the running statistics towards the batch's, the variance the unbiased one, as torch does."""
        mean, inverse_std = (torch.stack(parts) for parts in zip(*batch, strict=True))  # (N-1, S·R) each
        variance = (inverse_std.pow(-2) - EPS) * (rows / (rows - 1))
        for running, found in ((self.running_mean, mean), (self.running_var, variance)):
            by_site = found.view(len(found), self.runs, -1)
            if self.statistics == "site":
                running.lerp_(by_site.transpose(0, 1), MOMENTUM)
            else:
                # N-1 moves one after the other, the last site's counting most.
                later = torch.arange(len(found) - 1, -1, -1, device=found.device, dtype=found.dtype)
                weights = MOMENTUM * (1 - MOMENTUM) ** later
                running.mul_((1 - MOMENTUM) ** len(found)).add_(torch.einsum("n,nsr->sr", weights, by_site))


def _outer(x: Tensor, state: Tensor) -> Tensor:
    """x ⊗ y: (S or 1, I, 1, B) and (S, R, B) -> (S, I·R, B)."""
    return (x * state.unsqueeze(1)).flatten(1, 2)
