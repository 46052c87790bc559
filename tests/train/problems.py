"""Small trainings for the tests."""

from __future__ import annotations

import torch

import restt


def small_module(runs: int | None = None, sites: int = 5, outputs: int = 1, seed: int = 3, **options) -> restt.ResTT:
    module = restt.ResTT(sites, 2, 3, outputs, runs=runs, **options)
    module.reset_parameters(seed=seed)
    return module


def regression(rows: int = 60, sites: int = 5, dtype=torch.float32, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(rows, sites, 2, generator=generator, dtype=dtype)
    return x, x[:, 0, 0] * x[:, 2, 1] - x[:, 1, 0]


def classification(rows: int = 60, sites: int = 5, classes: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    x, values = regression(rows, sites)
    return x, (values.argsort().argsort() * classes // rows).long()


def weights(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


def assert_same_bits(found: torch.nn.Module, expected: torch.nn.Module) -> None:
    for name, value in expected.state_dict().items():
        assert torch.equal(found.state_dict()[name], value), f"{name} differs"


def measured(record) -> dict:
    """A record without the clock."""
    values = record.to_dict()
    for name in ("seconds", "samples_per_second", "replayed", "events"):
        values.pop(name)
    return values
