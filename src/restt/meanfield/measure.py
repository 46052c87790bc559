"""The mean-field profile of a real module on real data."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from restt._common.errors import shown
from restt.chain.eager import outer
from restt.chain.reference import ChainWeights
from restt.meanfield.profile import Profile
from restt.module import ResTT
from restt.topology import Topology


@dataclass(frozen=True)
class _Scaled:
    """One signal per run as ``value · exp(log_scale)``, the value of mean square 1 (0 and -inf where it is dead)."""

    value: Tensor  # (S, B, R)
    log_scale: Tensor  # (S,), float64

    @classmethod
    def of(cls, value: Tensor, log_scale: Tensor) -> _Scaled:
        log_rms = value.double().square().mean(dim=(1, 2)).log() / 2
        shrink = (-log_rms).where(log_rms.isfinite(), 0).exp()
        return cls(value * shrink.to(value.dtype)[:, None, None], log_scale + log_rms)

    @property
    def log_mean_square(self) -> Tensor:  # (S,)
        return 2 * self.log_scale


@torch.no_grad()
def measure(
    module: ResTT,
    x: Tensor,  # (B, N, I) or, with runs, (S, B, N, I)
) -> Profile:
    """Measure q and χ of this module on these features, by one forward and one backward sweep.

    Each run's q(k) is the mean of y(k)_v² over the batch and the state's entries, its χ(k) the mean square of the
    entries of the batch's Jacobians ∂Y(N)/∂Y(k-1), exact: the outputs' unit vectors are pushed back together. The
    profile is the mean over runs, with standard errors from two runs on. Signals are rescaled at every site, so
    chains of any length neither overflow nor vanish. The bias, being no part of the chain, is left out.

    Memory: S·B·I·R forward, S·B·O·I·R backward. For more runs than fit, measure blocks and pool them with
    :meth:`Profile.pooled`.

    Examples
    --------
    >>> import torch, restt
    >>> _ = torch.manual_seed(0)
    >>> model = restt.ResTT(sites=20, feature_dim=2, bond_dim=16, outputs=3, runs=8)
    >>> x = restt.features.Trigonometric()(torch.rand(5, 20))
    >>> profile = restt.meanfield.measure(model, x)
    >>> profile.q.shape, profile.chi.shape, profile.log_q_error.shape
    (torch.Size([20]), torch.Size([19]), torch.Size([20]))
    """
    if not isinstance(module, ResTT):
        raise TypeError(f"module must be a restt.ResTT, got {shown(module)}")
    x = module.padded(x)
    if x.shape[1] == 0:
        raise ValueError("x must hold at least one sample, got an empty batch")
    weights, topology = module.weights(), module.topology
    log_q = _forward(x, weights, topology)
    log_chi = _backward(x, weights, topology) if topology.sites > 1 else []
    runs = len(weights.first)
    empty = torch.empty(runs, 0, dtype=torch.float64)
    return Profile.of_runs(torch.stack(log_q, dim=1), torch.stack(log_chi, dim=1) if log_chi else empty)


def _forward(x: Tensor, weights: ChainWeights, topology: Topology) -> list[Tensor]:
    """Log mean squares (S,) of y(1) … y(N-1) and the output."""
    runs, batch = len(weights.first), x.shape[1]
    unscaled = torch.zeros(runs, dtype=torch.float64, device=x.device)
    y = _Scaled.of(x[:, :, 0] @ weights.first, unscaled)
    log_q = [y.log_mean_square]
    leaving: list[_Scaled] = []
    for n, skip in enumerate(topology.skips):
        core, entry, is_last = _tensors_of(n, weights, topology)
        features, parts = x[:, :, n + 1], []
        if skip == "full" and not is_last:
            parts.append(y)
        elif skip != "none":
            leaving = [_sum([*leaving, y], y)]
        if core is not None:
            parts.append(_Scaled.of(outer(y.value, features) @ core.flatten(1, 2), y.log_scale))
        if entry is not None:
            parts.append(_Scaled.of((features @ entry).expand(runs, batch, -1), unscaled))
        if is_last and leaving and weights.last_skip is not None:
            parts.append(_Scaled.of(leaving[0].value @ weights.last_skip, leaving[0].log_scale))
        y = _sum(parts, y)
        log_q.append(y.log_mean_square)
    return [value.cpu() for value in log_q]


def _backward(x: Tensor, weights: ChainWeights, topology: Topology) -> list[Tensor]:
    """Log mean squares (S,) of ∂Y(N)/∂Y(k-1) for k = 2 … N. The outputs' unit vectors share the batch axis."""
    runs, batch, outputs, bond = len(weights.first), x.shape[1], weights.outputs, weights.first.shape[-1]
    unscaled = torch.zeros(runs, dtype=torch.float64, device=x.device)
    eye = torch.eye(outputs, dtype=x.dtype, device=x.device).repeat(batch, 1).expand(runs, -1, -1)
    grad, log_chi = _Scaled.of(eye, unscaled), []
    dead = head = _Scaled.of(x.new_zeros(runs, batch * outputs, bond), unscaled)
    if weights.last_skip is not None:
        head = _Scaled.of(eye @ weights.last_skip.transpose(1, 2), unscaled)
    for n, skip in reversed(list(enumerate(topology.skips))):
        core, _, is_last = _tensors_of(n, weights, topology)
        parts = []
        if skip != "none":
            parts.append(grad if skip == "full" and not is_last else head)
        if core is not None:
            back = (grad.value @ core.flatten(1, 2).transpose(1, 2)).view(runs, batch, outputs, -1, bond)
            back = torch.einsum("sboik,sbi->sbok", back, x[:, :, n + 1].expand(runs, -1, -1))
            parts.append(_Scaled.of(back.flatten(1, 2), grad.log_scale))
        grad = _sum(parts, dead)
        log_chi.append(grad.log_mean_square)
    return [value.cpu() for value in reversed(log_chi)]


def _tensors_of(n: int, weights: ChainWeights, topology: Topology) -> tuple[Tensor | None, Tensor | None, bool]:
    """Core (S, I, R, …) and entry (S, I, …) of site n + 2, where it has them, and whether it is the last."""
    if n == topology.sites - 2:
        return weights.last_chain, weights.last_linear, True
    core = weights.chain[:, n] if topology.chains[n] and weights.chain is not None else None
    entry = weights.linear[:, n] if topology.linears[n] and weights.linear is not None else None
    return core, entry, False


def _sum(
    parts: list[_Scaled],
    like: _Scaled,  # what a sum of nothing looks like
) -> _Scaled:
    if not parts:
        return _Scaled(torch.zeros_like(like.value), torch.full_like(like.log_scale, -torch.inf))
    if len(parts) == 1:
        return parts[0]
    scales = torch.stack([part.log_scale for part in parts])
    common = scales.amax(dim=0)
    common = common.where(common.isfinite(), 0)
    shares = (scales - common).exp().to(parts[0].value.dtype)[..., None, None]
    total = shares[0] * parts[0].value
    for share, part in zip(shares[1:], parts[1:], strict=True):
        total = total + share * part.value
    return _Scaled.of(total, common)
