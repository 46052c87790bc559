"""The variances of signals and gradients along a chain, predicted or measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True)
class Profile:
    """q(k) and χ(k) along the chain (section IV of the paper), kept as natural logarithms.

    Attributes
    ----------
    log_q : Tensor (N,)
        ``log_q[k-1]`` = log E y(k)_v²; the last entry is the output's. -inf where a state is always 0.
    log_chi : Tensor (N-1,)
        ``log_chi[k-2]`` = log of the mean square of the entries of ∂Y(N)/∂Y(k-1), k = 2…N.
    run_log_q, run_log_chi : Tensor (S, N) and (S, N-1), optional
        The same of every measured run; ``log_q`` and ``log_chi`` are the logarithms of their means.

    Examples
    --------
    >>> from restt import Topology, meanfield
    >>> profile = meanfield.predict(Topology.plain(10_000), 1.0, sigma2=2.0, bond_dim=8)
    >>> profile.log_q[-1].item() / 10_000, profile.q[-1].item()
    (0.6929..., inf)
    """

    log_q: Tensor
    log_chi: Tensor
    run_log_q: Tensor | None = None
    run_log_chi: Tensor | None = None

    @classmethod
    def of_runs(
        cls,
        run_log_q: Tensor,  # (S, N)
        run_log_chi: Tensor,  # (S, N-1)
    ) -> Profile:
        """The profile of measured runs: the mean over them, and their spread."""
        return cls(_log_mean(run_log_q), _log_mean(run_log_chi), run_log_q, run_log_chi)

    @classmethod
    def pooled(cls, profiles: Sequence[Profile]) -> Profile:
        """One profile of all runs of several measurements, for runs that do not fit into memory side by side."""
        if not profiles:
            raise ValueError("profiles must hold at least one measured profile, got none")
        q = [profile.run_log_q for profile in profiles if profile.run_log_q is not None]
        chi = [profile.run_log_chi for profile in profiles if profile.run_log_chi is not None]
        if len(q) != len(profiles) or len(chi) != len(profiles):
            raise ValueError("profiles must all be measured: a predicted one has no runs to pool")
        return cls.of_runs(torch.cat(q), torch.cat(chi))

    @property
    def sites(self) -> int:
        """N."""
        return len(self.log_q)

    @cached_property
    def q(self) -> Tensor:  # (N,)
        """``q[k-1]`` = E y(k)_v²; inf or 0 beyond the range of float64, unlike ``log_q``."""
        return self.log_q.exp()

    @cached_property
    def chi(self) -> Tensor:  # (N-1,)
        """``chi[k-2]`` = mean square of the entries of ∂Y(N)/∂Y(k-1)."""
        return self.log_chi.exp()

    @cached_property
    def log_q_error(self) -> Tensor | None:  # (N,)
        """Standard error of ``log_q``, to first order: that of ``q`` over ``q``."""
        return _relative_error(self.run_log_q)

    @cached_property
    def log_chi_error(self) -> Tensor | None:  # (N-1,)
        """Standard error of ``log_chi``, to first order."""
        return _relative_error(self.run_log_chi)

    @property
    def median_log_q(self) -> Tensor | None:  # (N,)
        """The typical run's log q: at finite width it lies below the mean, which is dominated by rare large runs."""
        return None if self.run_log_q is None else _median(self.run_log_q)

    @property
    def median_log_chi(self) -> Tensor | None:  # (N-1,)
        """The typical run's log χ."""
        return None if self.run_log_chi is None else _median(self.run_log_chi)


def _log_mean(logs: Tensor) -> Tensor:  # (S, K) -> (K,)
    return torch.logsumexp(logs, dim=0) - math.log(len(logs))


def _relative_error(logs: Tensor | None) -> Tensor | None:  # (S, K) -> (K,)
    if logs is None or len(logs) < 2:
        return None
    top = logs.amax(dim=0)
    values = (logs - top.where(top.isfinite(), 0)).exp()
    mean = values.mean(dim=0)
    error = values.std(dim=0) / math.sqrt(len(logs))
    return error / mean.where(mean > 0, 1)


def _median(logs: Tensor) -> Tensor:
    ordered = logs.sort(dim=0).values
    low, high = ordered[(len(logs) - 1) // 2], ordered[len(logs) // 2]
    return low.where(low == high, (low + high) / 2)
