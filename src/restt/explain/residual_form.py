"""Rounding of trains, exact distances between two, and any train written as a residual one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from restt.diagonal import DiagonalTT
from restt.module import ResTT


def distance(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> Tensor:  # (D,)
    """Root of E(f - g)² of each output for two whitened trains, by QR along the train of f - g.

    Orthogonal steps subtract nothing large, so differences down to rounding are seen; squared moments would stop at
    its square root.
    """
    state = ours[0].new_ones(1, 2)  # (k, both bonds)
    for core, other in zip(ours, theirs, strict=True):
        split = core.shape[0]
        one = torch.einsum("kl,ljr->kjr", state[:, :split], core)
        two = torch.einsum("kl,ljr->kjr", state[:, split:], other)
        state = torch.linalg.qr(torch.cat([one, two], dim=-1).flatten(0, 1), mode="r").R
    return (one - two).flatten(0, 1).norm(dim=0)


def rounded(train: Sequence[Tensor], bond: int) -> list[Tensor]:
    """The train with inner bonds of at most ``bond``, by singular values: the best at each cut, in squared norm."""
    cores = list(train)
    for n in range(len(cores) - 1, 0, -1):  # rows orthonormal from the right
        left, width, right = cores[n].shape
        q, r = torch.linalg.qr(cores[n].reshape(left, width * right).T)
        cores[n] = q.T.reshape(-1, width, right)
        cores[n - 1] = cores[n - 1] @ r.T
    for n in range(len(cores) - 1):
        left, width, right = cores[n].shape
        u, s, v = torch.linalg.svd(cores[n].reshape(left * width, right), full_matrices=False)
        # Half of each singular value on both sides keeps the cores of one size.
        root = s[:bond].sqrt()
        cores[n] = (u[:, :bond] * root).reshape(left, width, -1)
        cores[n + 1] = torch.einsum("kr,rjt->kjt", root[:, None] * v[:bond], cores[n + 1])
    return cores


def as_residual(
    cores: Sequence[Tensor],  # N of (left, 1+I, right), N ≥ 2, bonds that rise and then fall
    like: ResTT | DiagonalTT,
    floor: float,
) -> ResTT:
    """A residual train of the largest bond among ``cores``, with a bias, that computes what they do.

    With state s(n) = t(n) P(n), where t is the train's and G₀(n) P(n) = P(n-1), the constant slices become identities:
    s(n) = s(n-1) (1 + Σ_i x_i A_i). Then y = s - c, with c the constant part of s(1), follows the recurrence of a
    residual train with cores A_i and entries c A_i. Singular values of G₀ below ``floor`` times the largest are raised
    to it, since they must be divided by; the caller measures what that costs.
    """
    bond = max(core.shape[-1] for core in cores[:-1])
    first, last = cores[0], cores[-1]
    residual = ResTT(
        len(cores),
        list(like.feature_dims),
        bond,
        last.shape[-1],
        second_moment=1.0 if isinstance(like, DiagonalTT) else like.second_moment,
        bias=True,
        runs=like.runs and 1,
        dtype=first.dtype,
        device=first.device,
    )
    for parameter in residual.parameters():
        parameter.zero_()
    weights: Any = residual.weights()
    widths = residual.feature_dims
    constant = _padded(first[:, 0], 1, bond)[0]  # c
    weights.first[0, : widths[0]] = _padded(first[0, 1 : 1 + widths[0]], widths[0], bond)
    up = torch.eye(bond, dtype=first.dtype, device=first.device)  # P(n)
    down = up  # and its inverse
    for n, core in enumerate(cores[1:-1]):
        u, s, v = torch.linalg.svd(_padded(core[:, 0], bond, bond))
        s = s.clamp(min=floor * float(s[0]))
        s[min(core.shape[0], core.shape[2]) :] = s[0]  # directions of the padding, which no state has
        after = (v.T / s) @ (u.T @ up)
        features = core[:, 1 : 1 + widths[n + 1]].transpose(0, 1)  # (I, left, right)
        chain = down @ _padded(features, bond, bond) @ after
        weights.chain[0, n, : widths[n + 1]] = chain
        weights.linear[0, n, : widths[n + 1]] = constant @ chain
        up, down = after, down @ (u * s) @ v
    down = down[:, : last.shape[0]]
    weights.last_chain[0, : widths[-1]] = down @ last[:, 1 : 1 + widths[-1]].transpose(0, 1)
    weights.last_linear[0, : widths[-1]] = constant @ weights.last_chain[0, : widths[-1]]
    weights.last_skip[0] = down @ last[:, 0]
    bias: Any = residual.bias
    bias.copy_((constant @ weights.last_skip[0]).expand_as(bias))
    return residual


def _padded(matrix: Tensor, rows: int, columns: int) -> Tensor:
    return torch.nn.functional.pad(matrix, (0, columns - matrix.shape[-1], 0, rows - matrix.shape[-2]))
