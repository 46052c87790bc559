"""The command ``restt meanfield``: theory and measurement of one chain as a table."""

from __future__ import annotations

import math
from pathlib import Path

import torch

from restt.features import Trigonometric
from restt.init.stability import signal_range, stable_sigma2
from restt.meanfield.comparison import compare_in_blocks
from restt.meanfield.plots import plot_profiles
from restt.meanfield.profile import Profile
from restt.meanfield.theory import predict
from restt.topology import Topology

_OUTPUTS = 10  # of the models measured, as in the paper's image tasks


def show(
    topology: str,
    sites: int,
    bond_dim: int,
    sigma2: str | float,
    second_moment: float,
    init: str,
    runs: int,
    seed: int,
    picture: Path | None,
) -> None:
    """Print phase, growth and the stable σ_w², with a measurement beside the theory where runs are asked for."""
    from rich.console import Console
    from rich.table import Table

    graph = Topology.preset(topology, sites)
    theory = predict(graph, second_moment, sigma2, bond_dim, init=init)
    measured: Profile | None = None
    if runs:
        if second_moment != 1.0:
            raise ValueError(f"second_moment must be 1 to measure, with the trigonometric map; got {second_moment}")
        x = Trigonometric()(torch.rand(2, sites, generator=torch.Generator().manual_seed(seed)))
        measured = compare_in_blocks(
            graph, x, sigma2=sigma2, bond_dim=bond_dim, outputs=_OUTPUTS, runs=runs, init=init, seed=seed
        ).profile
    table = Table("", "theory", *(["measured"] if measured is not None else []))
    for label, name, place in (
        ("q(1), variance of the first state", "log_q", 0),
        ("q(N), variance of the output", "log_q", -1),
        ("χ(2), gradient at the first state", "log_chi", 0),
        ("χ(N), gradient at the last state", "log_chi", -1),
    ):
        profiles = [theory] if measured is None else [theory, measured]
        if len(getattr(theory, name)):
            table.add_row(label, *(_power(float(getattr(profile, name)[place])) for profile in profiles))
    console = Console()
    console.print(table)
    span = signal_range(graph, second_moment, sigma2)
    stable = stable_sigma2(graph, second_moment)
    console.print(f"phase: {span.phase}; stable σ_w²: {stable if isinstance(stable, float) else stable.tolist()}")
    if picture is not None:
        plot_profiles({f"{topology}, N = {sites}, r = {bond_dim}": {init: (theory, measured)}}, picture)
        console.print(f"saved {picture}")


def _power(log_value: float) -> str:
    """A number given by its logarithm, which may lie far outside the floats."""
    if not math.isfinite(log_value):
        return "0" if log_value < 0 else "inf"
    exponent = math.floor(log_value / math.log(10))
    return f"{math.exp(log_value - exponent * math.log(10)):.3f}e{exponent:+d}"
