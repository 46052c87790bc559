"""Parameters of a training: accepted values, the meaning of "auto", and the memory it needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from os import PathLike
from typing import Any

import torch

from restt import features
from restt._common.compat_sklearn import Interval, StrOptions
from restt._common.devices import available_memory, gibibytes, read_device
from restt.features import FeatureMap
from restt.topology import PRESETS, Topology
from restt.train import Penalty
from restt.train.config import SCHEDULES


@dataclass(frozen=True)
class NetSettings:
    """Tuning numbers of the trained estimators, chosen on small tables unless a source stands beside them."""

    # Multiplications of one epoch (rows · Σ widths · r² · runs) below which float64 on a CPU costs little.
    float64_work: float = 2e9
    # Tables of up to this many rows train in one batch; larger ones in batches of ``batch_size`` rows.
    whole_rows: int = 2048
    batch_size: int = 512
    # Steps that epochs="auto" aims at, and its fewest epochs for large tables.
    steps: int = 150
    fewest_epochs: int = 20
    # Epochs without a better validation loss after which early_stopping=True stops.
    patience: int = 20
    # The chain is walked site by site; beyond this many sites one step takes minutes.
    most_sites: int = 100_000
    # penalty="auto". Cross-entropy is flatter than squares of standardised targets, so a smaller penalty does the same;
    # squares of one-hot targets are smaller by the variance of the targets.
    squares_penalty: float = 0.02
    cross_entropy_penalty: float = 0.005
    # Weight of the chain's cores, which carry interactions, relative to that of main effects.
    chain_grade: float = 10.0
    # The loss is a mean over rows, so beyond this many the squares' penalty falls as 1/rows: on a simulated table of 20
    # columns R² goes from 0.80 to 0.96 at 20,000 rows and from 0.81 to 0.99 at 60,000.
    penalised_rows: int = 2000
    # Smallest initial share of a class, also where partial_fit has not seen it yet.
    least_prior: float = 1e-3
    # Smallest second moment of a site for the initialisation: sites that hardly vary would get huge weights.
    least_second_moment: float = 0.1
    # Rows on which a finished fit is compared with a constant, and the ratio of losses beyond which it has failed.
    judged_rows: int = 20_000
    failed_ratio: float = 1.01
    # Bytes that a group of fits in a search may need on a CPU, about three times what a step touches. Boston's 404 rows
    # with r = 10 in float64, processor time of a step per run: 1.5 ms alone, 0.78 ms for 4 runs, 0.66 for 12 (18 MB
    # touched), 0.64 for 48. Share of a GPU's free memory for the same.
    cached_bytes: float = 60e6
    gpu_share: float = 0.5


NET = NetSettings()
CHAIN_GRADE = NET.chain_grade

# Precisions whose parameters are float32; what differs is how the fused GPU kernels multiply.
PRECISIONS = {"float64": torch.float64, "float32": torch.float32, "tf32": torch.float32, "bf16": torch.float32}

# Parameters that closed-form estimators do not have, and what they accept.
TRAINING: dict[str, Any] = {
    "topology": [StrOptions(set(PRESETS)), Topology],
    "feature_map": [StrOptions({"auto", *features.available()}), FeatureMap],
    "sigma2": [StrOptions({"auto"}), Interval(Real, 0, None, closed="neither")],
    "loss": [],
    "epochs": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
    "lr": [Interval(Real, 0, None, closed="neither")],
    "schedule": [StrOptions(set(SCHEDULES))],
    "batch_size": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
    "penalty": [StrOptions({"auto"}), Interval(Real, 0, None, closed="left"), dict, Penalty, None],
    "dropout": [Interval(Real, 0, 1, closed="left")],
    "runs": [Interval(Integral, 1, None, closed="left")],
    "early_stopping": ["boolean", Interval(Integral, 1, None, closed="left")],
    "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
    "site_order": [StrOptions({"auto", "given"}), "array-like"],
    "warm_start": ["boolean"],
    "checkpoint_dir": [str, PathLike, None],
    "precision": [StrOptions({"auto", *PRECISIONS})],
}


@dataclass(frozen=True)
class Settings:
    """Device, precision, batches and length of one training."""

    device: torch.device
    precision: str
    batch_size: int | None
    epochs: int
    step_work: float  # multiplications of one step

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights."""
        return PRECISIONS[self.precision]


def settle(
    rows: int, width: int, bond_dim: int, runs: int, *, device: Any, precision: str, batch_size: Any, epochs: Any
) -> Settings:
    """Choose the values of parameters that are ``"auto"``; ``width`` is Σ_n I_n.

    >>> settle(3000, 80, 10, 1, device="cpu", precision="auto", batch_size="auto", epochs="auto").epochs
    25
    """
    work = float(rows) * width * bond_dim**2 * runs
    chosen = read_device(device, work)
    if precision == "auto":
        precision = "float64" if chosen.type == "cpu" and work <= NET.float64_work else "float32"
    batch = (rows if rows <= NET.whole_rows else NET.batch_size) if batch_size == "auto" else batch_size
    steps = -(-rows // batch)
    count = max(NET.fewest_epochs, -(-NET.steps // steps)) if epochs == "auto" else epochs
    step_work = work * min(1.0, batch / rows)
    return Settings(chosen, precision, None if batch >= rows else int(batch), int(count), step_work)


def read_penalty(penalty: Any, auto: float) -> Penalty | None:
    """Read ``penalty``: a number p weighs linear entries and head by p and the chain's cores by 10 p.

    A dict or Penalty gives each weight; ``auto`` is the number for ``"auto"``.

    >>> read_penalty("auto", 1e-3)
    Penalty(chain=0.01, linear=0.001, head=0.001, towards='zero')
    """
    if penalty is None or isinstance(penalty, Penalty):
        return penalty
    if isinstance(penalty, Mapping):
        unknown = sorted(set(penalty) - {"chain", "linear", "head"})
        if unknown:
            raise ValueError(f"penalty may hold chain, linear and head, got {unknown}")
        return Penalty(**penalty)
    weight = auto if penalty == "auto" else float(penalty)
    return Penalty(chain=NET.chain_grade * weight, linear=weight, head=weight)


def training_bytes(
    settings: Settings, sites: int, width: int, bond_dim: int, outputs: int, runs: int, rows: int
) -> int:
    """Estimate the bytes that a training of a residual module on this many rows needs; ``width`` is the widest site's.

    Fifteen copies of the weights (the module, its gradients, a working copy and Adam's moments, two snapshots of these
    three for the guard, the best epoch and a checkpoint), the site vectors, and a step, which has every state three
    times, the features twice, and x ⊗ y of one site.
    """
    weights = sites * width * (bond_dim * bond_dim + bond_dim) + width * bond_dim * outputs
    row = runs * (3 * sites * bond_dim + 2 * sites * width + 2 * width * bond_dim)
    batch = min(rows, settings.batch_size or rows)
    return (15 * runs * weights + rows * sites * width + batch * row) * settings.dtype.itemsize


def check_fits(sites: int, width: int, bond_dim: int, outputs: int, runs: int, rows: int, settings: Settings) -> None:
    """Raise ValueError where a training does not fit into memory, or the chain is too long."""
    need = training_bytes(settings, sites, width, bond_dim, outputs, runs, rows)
    free = available_memory(settings.device)
    if need > free or sites > NET.most_sites:
        raise ValueError(
            f"X is too large: {sites} columns as sites of width {width} with bond_dim={bond_dim} and runs={runs} on "
            f"{rows} rows would need {gibibytes(need)}, {gibibytes(free)} are available on {settings.device}, and a "
            f"chain may have {NET.most_sites} sites; use fewer columns, a smaller bond_dim or fewer runs, and "
            'handle_unknown="other" where a column has many categories'
        )
