"""Does it train? Measured on the plane of σ_w² and N, all σ_w² side by side on the runs axis."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor

from restt.features import Trigonometric
from restt.init.stability import StabilityWarning
from restt.module import ResTT
from restt.topology import Topology
from restt.train import TrainConfig, train


def train_over_sigma2(
    topology: Topology,
    sigma2: Sequence[float],
    x: Tensor,  # (M, N), values in [0, 1]
    y: Tensor,  # (M,), classes
    *,
    bond_dim: int,
    epochs: int,
    lr: float,
    batch_size: int = 100,
    init: str = "paper",
    device: str = "cpu",
    seed: int = 0,
) -> Tensor:  # (S, epochs)
    """Training accuracy after every epoch of one model per σ_w², trained side by side under the trigonometric map.

    Nothing rescues a run that explodes: it shows chance level from then on.

    Examples
    --------
    >>> import torch
    >>> from restt import Topology
    >>> x = torch.rand(40, 6, generator=torch.Generator().manual_seed(0))
    >>> y = (x[:, 0] > 0.5).long()
    >>> options = {"bond_dim": 4, "epochs": 3, "lr": 0.01}
    >>> train_over_sigma2(Topology.residual(6), [0.01, 0.1], x, y, **options).shape
    torch.Size([2, 3])
    """
    classes = int(y.max()) + 1
    features = Trigonometric()
    module = _module_over_sigma2(topology, sigma2, bond_dim, classes, init, device, seed)
    config = TrainConfig(
        epochs=epochs, batch_size=batch_size, lr=lr, rates="uniform", loss="mse", max_failures=None, seed=seed
    )
    records = train(module, x, y, config=config, validation=(x, y), feature_map=features)
    curves = [record.validation["accuracy"] for record in records]
    accuracy = torch.tensor(curves, dtype=torch.float64).T
    return accuracy.where(accuracy.isfinite(), 1 / classes)


def success(
    accuracy: Tensor,  # any shape, in 0…1
    classes: int,
) -> Tensor:
    """Accuracy on a scale from 0, chance level, to 1."""
    chance = 1 / classes
    return ((accuracy - chance) / (1 - chance)).clamp(0, 1)


def _module_over_sigma2(
    topology: Topology, sigma2: Sequence[float], bond_dim: int, outputs: int, init: str, device: str, seed: int
) -> ResTT:
    """Run k starts with the k-th σ_w²; the noise it is scaled from is the same for all, so only σ_w² differs."""
    sites, width = topology.sites, 2
    module = ResTT(sites, width, bond_dim, outputs, topology, init=init, runs=len(sigma2), device=device)
    with torch.no_grad(), warnings.catch_warnings(action="ignore", category=StabilityWarning):
        for slot, value in enumerate(sigma2):
            single = ResTT(sites, width, bond_dim, outputs, topology, value, init=init, device=device)
            single.reset_parameters(seed=seed)
            for name, parameter in module.named_parameters():
                parameter[slot].copy_(single.get_parameter(name))
    return module
