"""A matrix product state trained by automatic gradients.

S. Efthymiou, J. Hidary, S. Leichenauer, "TensorNetwork for machine learning" (2019). As there: pixels p as [1 − p, p],
a train with one bond for all sites and the label on a tensor in its middle, cores that start near the identity,
softmax cross-entropy, Adam. The train left of the label and that right of it are contracted side by side.

Where the source is silent or slower, larger batches, a rate that falls to zero along a cosine and bond 20 were chosen
on 2000 MNIST images of 14×14 pixels held out of the training set, with 3000 to train on (94.8 % after 30 epochs; bond
10: 93.6 %).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from restt._common.errors import check_positive
from restt._common.seeds import run_generator
from restt.train.data import FeatureMap
from restt_baselines.network import NetworkClassifier
from restt_baselines.registry import Baseline
from restt_baselines.tensor.string_bond import Strings, shares

# Below, a half of the train would have a single site and no bond of its own.
LEAST_COLUMNS = 4


class LabelInTheMiddle(nn.Module):
    """f_o = y(left)ᵀ L_o y(right), y the states of the trains from either end, for each run.

    >>> LabelInTheMiddle(7, 2, bond_dim=3, outputs=4, runs=2, seed=0, noise=0.01)(torch.rand(5, 7, 2)).shape
    torch.Size([2, 5, 4])
    """

    def __init__(
        self, sites: int, feature_dim: int, bond_dim: int, outputs: int, runs: int, seed: int, noise: float
    ) -> None:
        super().__init__()
        self.runs = runs
        middle = sites // 2
        left, right = torch.arange(middle), torch.arange(sites - 1, middle - 1, -1)
        identity = torch.eye(bond_dim)
        self.left, self.right = (
            Strings(half, feature_dim, bond_dim, bond_dim, runs, seed, noise=noise, head=identity, stream=stream)
            for stream, half in enumerate((left.unsqueeze(0), right.unsqueeze(0)), start=1)
        )
        self.label = nn.Parameter(torch.empty(runs, bond_dim, outputs, bond_dim))
        with torch.no_grad():
            for run in range(runs):
                drawn = torch.randn(self.label.shape[1:], generator=run_generator(seed, run))
                self.label[run] = noise * drawn + identity.unsqueeze(1)

    def forward(self, x: Tensor) -> Tensor:  # (B, N, I) or (S, B, N, I) -> (S, B, O)
        """Outputs of every run."""
        left, right = self.left(x).squeeze(1), self.right(x).squeeze(1)  # (S, B, R)
        seen = (left @ self.label.flatten(2)).unflatten(2, self.label.shape[2:])
        return torch.einsum("sbor,sbr->sbo", seen, right)


@dataclass(kw_only=True, eq=False, repr=False)
class MPSAdamClassifier(NetworkClassifier):
    """Parameters beyond those of :class:`restt_baselines.network.Network`.

    bond_dim : int
        Width of all bonds.
    noise : float
        Standard deviation of what is added to the identity at the start.
    """

    images = True

    bond_dim: int = 20
    noise: float = 1e-2
    epochs: int = 40
    batch_size: int | None = 256
    lr: float = 2e-3
    clip_norm: float | None = 1.0
    schedule: str = "cosine"
    scaling: str = "minmax"

    def build(self, columns: int, outputs: int, runs: int, seed: int) -> nn.Module:
        """The untrained module."""
        if columns < LEAST_COLUMNS:
            raise ValueError(f"mps-adam needs at least {LEAST_COLUMNS} columns, got n_features = {columns}")
        noise = check_positive("noise", self.noise, allow_zero=True)
        return LabelInTheMiddle(columns, 2, self.bond_dim, outputs, runs, seed, noise)

    def feature_map(self) -> FeatureMap:
        """The map from scaled columns to site vectors."""
        return shares


MPS_ADAM = Baseline.of(classification=MPSAdamClassifier)
