"""The mathematics as test helpers, for models built on restt."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from restt.diagonal import DiagonalTT
from restt.module import ResTT

__all__ = ["assert_multilinear"]


def assert_multilinear(
    model: ResTT | DiagonalTT | Callable[[Tensor], Tensor],
    x: Tensor | None = None,  # (B, N, I)
    *,
    tolerance: float | None = None,
    seed: int = 0,
) -> None:
    """Raise AssertionError unless the output is affine in each site vector: f(au + (1-a)v) = a f(u) + (1-a) f(v).

    One site at a time, all others fixed. ``x`` gives the point, dtype and shape; for a module it may be left out.
    ``tolerance`` is relative to the largest output and defaults to 1e4 rounding units of the dtype.

    >>> import torch, restt
    >>> restt.testing.assert_multilinear(restt.ResTT(sites=4, feature_dim=2, bond_dim=3, outputs=2))
    >>> restt.testing.assert_multilinear(lambda x: x.square().sum((1, 2)), torch.rand(3, 4, 2))
    Traceback (most recent call last):
    AssertionError: not affine in site 0 (counted from 0): off by ...
    """
    generator = torch.Generator().manual_seed(seed)
    if x is None:
        if not isinstance(model, (ResTT, DiagonalTT)):
            raise TypeError(f"x is needed to know the shape of the input of {type(model).__name__}")
        noise = torch.randn(3, model.sites, model.feature_dim, generator=generator)
        x = noise.to(model.device, model.dtype)
    if x.dim() != 3:
        raise ValueError(f"x must have shape (B, N, I), got {tuple(x.shape)}")
    tolerance = 1e4 * torch.finfo(x.dtype).eps if tolerance is None else tolerance
    a = 0.3
    with torch.no_grad():
        for site in range(x.shape[1]):
            u, v = (torch.randn(x[:, site].shape, generator=generator).to(x) for _ in range(2))
            mixed, at_u, at_v = (_replaced(x, site, value) for value in (a * u + (1 - a) * v, u, v))
            f_mixed, f_u, f_v = model(mixed), model(at_u), model(at_v)
            scale = max(1.0, *(value.abs().max().item() for value in (f_mixed, f_u, f_v)))
            off = (f_mixed - (a * f_u + (1 - a) * f_v)).abs().max().item()
            if not off <= tolerance * scale:
                raise AssertionError(
                    f"not affine in site {site} (counted from 0): off by {off:.3g}, allowed {tolerance * scale:.3g}"
                )


def _replaced(x: Tensor, site: int, value: Tensor) -> Tensor:
    x = x.clone()
    x[:, site] = value
    return x
