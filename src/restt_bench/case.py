"""One configuration to time, and how it is timed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from restt import chain
from restt._common.errors import check_choice, check_int, check_positive
from restt.module import ResTT

# Sizes of the parity check: small enough to be quick, odd enough to leave partial tiles. The bond stays as timed,
# since kernels change with it.
PARITY_SITES, PARITY_BATCH, PARITY_RUNS = 64, 71, 3
# How float32 operands may be rounded before they are multiplied; a CPU has only the first.
PRECISIONS = ("float32", "tf32", "bf16")


@dataclass(frozen=True)
class Case:
    """Sizes, dtype, precision of products and device of one timed configuration of a residual chain.

    >>> case = Case(bond_dim=100)
    >>> print(case)
    N=196 I=2 r=100 O=10 B=512 float32 cpu
    >>> print(case.scaled_down())
    N=64 I=2 r=100 O=10 B=71 float32 cpu
    """

    sites: int = 196
    feature_dim: int = 2
    bond_dim: int = 20
    outputs: int = 10
    batch: int = 512
    runs: int | None = None
    dtype: str = "float32"
    device: str = "cpu"
    precision: str = "float32"

    def __post_init__(self) -> None:
        for name in ("sites", "feature_dim", "bond_dim", "outputs", "batch"):
            check_int(name, getattr(self, name), minimum=1)
        if self.runs is not None:
            check_int("runs", self.runs, minimum=1)
        check_choice("dtype", self.dtype, ("float32", "float64"))
        check_choice("precision", self.precision, PRECISIONS)

    def __str__(self) -> str:
        runs = "" if self.runs is None else f" S={self.runs}"
        sizes = f"N={self.sites} I={self.feature_dim} r={self.bond_dim} O={self.outputs} B={self.batch}"
        rounded = "" if self.precision == "float32" else f" ({self.precision} products)"
        return f"{sizes}{runs} {self.dtype}{rounded} {self.device}"

    def scaled_down(self) -> Case:
        """Configuration at the sizes of the parity check."""
        runs = None if self.runs is None else min(self.runs, PARITY_RUNS)
        return replace(self, sites=min(self.sites, PARITY_SITES), batch=min(self.batch, PARITY_BATCH), runs=runs)

    @property
    def on_gpu(self) -> bool:
        """Whether the device is a GPU."""
        return self.device.startswith("cuda")

    @property
    def itemsize(self) -> int:
        """Bytes of one number."""
        return 8 if self.dtype == "float64" else 4

    @contextmanager
    def matmul_precision(self) -> Iterator[None]:
        """Set the precision of products, restt's and torch's own alike; without effect on a CPU."""
        if not self.on_gpu:
            yield
            return
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest" if self.precision == "float32" else "high")
        try:
            with chain.precision(self.precision):
                yield
        finally:
            torch.set_float32_matmul_precision(before)

    def data(self, seed: int) -> tuple[Tensor, Tensor]:
        """Features (B, N, I) and targets (B, O).

        The features are [1, u, u', …] with u uniform: the constant prevents denormal numbers in a plain chain of
        hundreds of sites, whose arithmetic is many times slower on a CPU.
        """
        generator = torch.Generator().manual_seed(seed)
        x = torch.rand(self.batch, self.sites, self.feature_dim, generator=generator, dtype=torch.float64)
        x[..., 0] = 1
        target = torch.randn(self.batch, self.outputs, generator=generator, dtype=torch.float64)
        dtype = getattr(torch, self.dtype)
        return x.to(self.device, dtype), target.to(self.device, dtype)

    def module(self, seed: int) -> ResTT:
        """The model of this configuration."""
        module = ResTT(
            self.sites,
            self.feature_dim,
            self.bond_dim,
            self.outputs,
            second_moment=1.0 + (self.feature_dim - 1) / 3,  # of the features of data()
            runs=self.runs,
            dtype=getattr(torch, self.dtype),
            device=self.device,
        )
        module.reset_parameters(seed=seed)
        return module


@dataclass(frozen=True)
class Settings:
    """How a benchmark is run: rounds, budgets and the seed.

    ``budget`` is the seconds each implementation may use per case for its timed calls. In a sweep, an implementation
    that needed more than ``slow`` seconds for one step is left out of the larger sizes. ``workers`` processes compile
    GPU kernels, or fit models of the league.
    """

    rounds: int = 41
    budget: float = 10.0
    slow: float = 5.0
    seed: int = 0
    quick: bool = False
    workers: int = 1

    def __post_init__(self) -> None:
        check_int("rounds", self.rounds, minimum=1)
        check_positive("budget", self.budget)
        check_positive("slow", self.slow)
        check_int("seed", self.seed, minimum=0)
        check_int("workers", self.workers, minimum=1)


QUICK = Settings(rounds=5, budget=0.5, quick=True)
