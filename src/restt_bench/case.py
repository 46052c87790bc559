"""One configuration to time."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from restt._common.errors import check_choice, check_int
from restt.topology import PRESETS

if TYPE_CHECKING:
    from torch import Tensor

    from restt.module import ResTT

# Sizes of the parity check: small enough to be quick, odd enough to leave partial tiles. The bond stays as timed,
# since kernels change with it.
PARITY_SITES, PARITY_BATCH, PARITY_RUNS = 64, 71, 3


@dataclass(frozen=True)
class Case:
    """Sizes, topology, dtype and device of one timed configuration.

    >>> case = Case(bond_dim=100)
    >>> print(case)
    N=196 I=2 r=100 O=10 B=512 residual float32 cpu
    >>> print(case.scaled_down())
    N=64 I=2 r=100 O=10 B=71 residual float32 cpu
    """

    sites: int = 196
    feature_dim: int = 2
    bond_dim: int = 20
    outputs: int = 10
    batch: int = 512
    runs: int | None = None
    topology: str = "residual"
    dtype: str = "float32"
    device: str = "cpu"

    def __post_init__(self) -> None:
        for name in ("sites", "feature_dim", "bond_dim", "outputs", "batch"):
            check_int(name, getattr(self, name), minimum=1)
        if self.runs is not None:
            check_int("runs", self.runs, minimum=1)
        check_choice("topology", self.topology, PRESETS)
        check_choice("dtype", self.dtype, ("float32", "float64"))

    def __str__(self) -> str:
        runs = "" if self.runs is None else f" S={self.runs}"
        sizes = f"N={self.sites} I={self.feature_dim} r={self.bond_dim} O={self.outputs} B={self.batch}"
        return f"{sizes}{runs} {self.topology} {self.dtype} {self.device}"

    def as_dict(self) -> dict[str, Any]:
        """The fields by name, ready for JSON."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def scaled_down(self) -> Case:
        """The same configuration at the sizes of the parity check."""
        runs = None if self.runs is None else min(self.runs, PARITY_RUNS)
        return replace(self, sites=min(self.sites, PARITY_SITES), batch=min(self.batch, PARITY_BATCH), runs=runs)

    @property
    def itemsize(self) -> int:
        """Bytes of one number."""
        return 8 if self.dtype == "float64" else 4

    @property
    def second_moment(self) -> float:
        """E Σ_i x(n,i)² of :meth:`data`."""
        return 1.0 + (self.feature_dim - 1) / 3

    def data(self, seed: int) -> tuple[Tensor, Tensor]:
        """Features (B, N, I) and targets (B, O).

        The features are [1, u, u', …] with u uniform: the constant keeps a plain chain of hundreds of sites away from
        denormal numbers, whose arithmetic is many times slower on a CPU and would be timed instead of the chain.
        """
        import torch

        generator = torch.Generator().manual_seed(seed)
        x = torch.rand(self.batch, self.sites, self.feature_dim, generator=generator, dtype=torch.float64)
        x[..., 0] = 1
        target = torch.randn(self.batch, self.outputs, generator=generator, dtype=torch.float64)
        dtype = getattr(torch, self.dtype)
        return x.to(self.device, dtype), target.to(self.device, dtype)

    def module(self, seed: int) -> ResTT:
        """The model of this configuration."""
        import torch

        from restt.module import ResTT

        module = ResTT(
            self.sites,
            self.feature_dim,
            self.bond_dim,
            self.outputs,
            self.topology,
            second_moment=self.second_moment,
            runs=self.runs,
            dtype=getattr(torch, self.dtype),
            device=self.device,
        )
        module.reset_parameters(seed=seed)
        return module
