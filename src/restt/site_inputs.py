"""Site features as a module takes them: (B, N, I) or packed (B, ΣI), with runs also (S, …)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from restt._common.errors import check_int, shown
from restt.chain.packed import is_worth_packing, pack, unpack
from restt.chain.precision import autocast_dtype
from restt.topology import Topology


class InputShape:
    """Shapes that a module of these widths accepts; what every call looks at is worked out once."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        self.widths, self.sites = widths, len(widths)
        self.widest, self.total = max(widths), sum(widths)
        self.is_ragged, self.is_worth_packing = len(set(widths)) > 1, is_worth_packing(widths)

    def padding(self, device: torch.device) -> Tensor | None:  # (N, I)
        """Mark the entries beyond a site's width; None where all sites are equally wide."""
        if not self.is_ragged:
            return None
        if device.type == "meta":  # a comparison there would load torch's compiler
            return torch.empty(self.sites, self.widest, dtype=torch.bool, device=device)
        return torch.arange(self.widest, device=device) >= torch.tensor(self.widths, device=device)[:, None]

    def prepared(
        self,
        x: Tensor,
        like: Tensor,  # a parameter
        padding: Tensor | None,  # (N, I), where there is nothing
        runs: int | None,
    ) -> tuple[Tensor, tuple[int, ...], torch.dtype | None]:
        """Features for the chain, their widths if packed, and the type of the output under autocast."""
        self.check(x, like, runs)
        lowered = lowered_dtype(x, like)
        if lowered is not None:
            x = x.to(like.dtype)
        widths = self.widths
        if not self.is_packed(x, runs):
            if self.is_worth_packing:
                x = pack(x, self.widths)
            else:
                x, widths = _zero_padded(x, padding), ()
        if runs is not None and x.dim() == (2 if widths else 3):
            x = x.unsqueeze(0)
        return x, widths, lowered

    def padded(self, x: Tensor, like: Tensor, padding: Tensor | None, runs: int | None) -> Tensor:  # (S or 1, B, N, I)
        """Features in their padded form, checked, with the runs axis in front and zeros as padding."""
        self.check(x, like, runs)
        x = unpack(x, self.widths) if self.is_packed(x, runs) else _zero_padded(x, padding)
        return x.unsqueeze(0) if x.dim() == 3 else x

    def is_packed(self, x: Tensor, runs: int | None) -> bool:
        """Whether x is (B, ΣI) or (S, B, ΣI). The two readings of three axes agree in shape only where N = B = 1."""
        if x.dim() == 3 and runs is not None:
            return tuple(x.shape[1:]) != (self.sites, self.widest) and x.shape[-1] == self.total
        return x.dim() == 2

    def is_usual(self, x: Any, like: Tensor) -> bool:
        """Whether x is (B, N, I), of the type of ``like`` and on its device."""
        if not isinstance(x, Tensor) or x.dim() != 3 or x.dtype != like.dtype or x.device != like.device:
            return False
        _, sites, width = x.shape
        return sites == self.sites and width == self.widest

    def check(self, x: Any, like: Tensor, runs: int | None) -> None:
        """Raise TypeError or ValueError, naming what was expected, where x is nothing for parameters as ``like``."""
        if not isinstance(x, Tensor):
            raise TypeError(
                f"x must be a torch.Tensor, got {type(x).__name__}; feature maps in restt.features make one"
            )
        if self.is_usual(x, like):
            return
        self._check_shape(tuple(x.shape), self.is_packed(x, runs), runs)
        if x.dtype != like.dtype and not (x.is_floating_point() and lowered_dtype(x, like) is not None):
            hint = "" if x.dtype.is_floating_point else "; features must be floating point"
            raise TypeError(f"x has dtype {x.dtype}, the module's parameters have {like.dtype}{hint}")
        if x.device != like.device:
            raise ValueError(f"x is on {x.device}, the module's parameters are on {like.device}")

    def _check_shape(self, shape: tuple[int, ...], packed: bool, runs: int | None) -> None:
        accepted = "(B, N, I) or packed (B, ΣI)"
        if runs is not None:
            accepted = "(B, N, I), (S, B, N, I) or packed (B, ΣI), (S, B, ΣI)"
        if packed and shape[-1] != self.total:
            raise ValueError(
                f"x has {shape[-1]} packed features (last axis of shape {shape}), the module expects "
                f"{self.total}, the sum of feature_dim; x must have shape {accepted}"
            )
        if not packed and len(shape) != 3 and not (len(shape) == 4 and runs is not None):
            raise ValueError(f"x must have shape {accepted}, got {shape}")
        if len(shape) == (3 if packed else 4) and shape[0] != runs:
            raise ValueError(f"x has {shape[0]} runs (its first axis), the module has {runs}")
        if packed:
            return
        if shape[-2] != self.sites:
            raise ValueError(f"x has {shape[-2]} sites (axis -2 of shape {shape}), the module expects {self.sites}")
        if shape[-1] != self.widest:
            raise ValueError(
                f"x has feature width {shape[-1]} (last axis of shape {shape}), the module expects {self.widest}"
            )


def _zero_padded(x: Tensor, padding: Tensor | None) -> Tensor:
    return x if padding is None else x.masked_fill(padding, 0)


def lowered_dtype(x: Tensor, like: Tensor) -> torch.dtype | None:
    """The type of a surrounding ``torch.autocast`` for x's device, which leaves float64 alone; None without one."""
    lowered = autocast_dtype(x.device.type)
    return None if lowered is None or torch.float64 in (x.dtype, like.dtype) else lowered


def checked_widths(feature_dim: int | Sequence[int], sites: int) -> tuple[int, ...]:
    """The feature width of every site.

    >>> checked_widths(2, 3), checked_widths([1, 2], 2)
    ((2, 2, 2), (1, 2))
    """
    if isinstance(feature_dim, Sequence) and not isinstance(feature_dim, str):
        if len(feature_dim) != sites:
            raise ValueError(f"feature_dim must be an integer or {sites} of them, one per site, got {len(feature_dim)}")
        return tuple(check_int("feature_dim", width, minimum=1) for width in feature_dim)
    return (check_int("feature_dim", feature_dim, minimum=1),) * sites


def checked_topology(topology: str | Topology, sites: int) -> Topology:
    """The topology of this many sites, by the name of a preset or as it is."""
    if isinstance(topology, str):
        return Topology.preset(topology, sites)
    if not isinstance(topology, Topology):
        raise TypeError(f"topology must be a preset's name or a Topology, got {shown(topology)}")
    if topology.sites != sites:
        raise ValueError(f"topology has {topology.sites} sites, the module has sites={sites}")
    return topology
