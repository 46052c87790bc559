"""The mean-field analysis (paper, Sec. IV and Appendix B), measured: pictures and numbers."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from restt._common.drawing import require_matplotlib
from restt._common.errors import check_choice
from restt.features import Trigonometric
from restt.meanfield import Profile, predict
from restt.topology import Topology
from restt_paper.engine.experiment import PICTURES, Context, Experiment, Result, Settings
from restt_paper.engine.store import Cell, Store
from restt_paper.engine.table import Table
from restt_paper.meanfield.comparison import (
    Comparison,
    StepRatios,
    compare_in_blocks,
    gradient_spread,
    gradients_in_blocks,
    mixed_topology,
)
from restt_paper.meanfield.phases import phase_diagram, typical_log_decay
from restt_paper.meanfield.plots import (
    plot_conventions,
    plot_finite_width,
    plot_gradients,
    plot_phases,
    plot_profiles,
    plot_steps,
)
from restt_paper.meanfield.tables import study_tables
from restt_paper.meanfield.trainability import MAP_SIZES, trainability_map

TITLE = "Mean-field theory, measured"
FILES = "fig-meanfield-{}.png"


@dataclass(frozen=True)
class Sizes:
    """Sizes of the measurements."""

    sites: int
    bond_dim: int
    runs: int
    batch: int
    widths: tuple[int, ...]  # bond dimensions of the finite-width study
    width_runs: int
    plain_sites: int  # of the plain train whose gradients are to be even
    residual_sites: int
    gradient_bond_dim: int
    gradient_runs: int
    gradient_batch: int = 8
    outputs: int = 10
    tt_slopes: tuple[float, ...] = (0.9, 1.0, 1.1)
    restt_slopes: tuple[float, ...] = (0.001, 0.01, 0.1)
    mixed_seeds: tuple[int, ...] = (1, 2, 3)


SIZES = {
    # N = 196 and r = 100 are the paper's (Sec. V-B).
    "paper": Sizes(196, 100, 200, 2, (5, 10, 20, 50, 100), 400, 1000, 10_000, 20, 11),
    "quick": Sizes(196, 20, 60, 2, (5, 10, 20, 50), 60, 300, 1000, 10, 5),
}


# Each shows every random model, which the results do not keep.
DRAWN = ("conventions", "profiles", "steps", "finite-width", "gradients", "phases", "trainability")


def cells(profile: str) -> list[Cell]:
    """One: the measurements share their models."""
    settings = {
        "profile": profile,
        **asdict(SIZES[check_choice("profile", profile, SIZES)]),
        "trainability": asdict(MAP_SIZES[profile]),
        "seed": 0,
        PICTURES: [FILES.format(name) for name in DRAWN],
    }
    return [Cell("fig-meanfield", "study", settings)]


def compute(settings: Settings, context: Context) -> Result:
    """Measure and draw."""
    require_matplotlib()  # before minutes of work that could not be shown
    context.pictures.mkdir(parents=True, exist_ok=True)
    pictures = {name: context.pictures / FILES.format(name) for name in DRAWN}
    seed = settings["seed"]
    generator = torch.Generator().manual_seed(seed)
    x = Trigonometric()(torch.rand(settings["batch"], settings["sites"], generator=generator))
    lines = _lines(settings)
    measured = [_measured(line, settings, x, seed + number) for number, line in enumerate(lines)]
    predicted = [predict(line.topology, 1.0, line.sigma2, settings["bond_dim"]) for line in lines]
    _draw_profiles(lines, predicted, measured, pictures)
    _draw_conventions(settings, lines, predicted, measured, pictures["conventions"])
    slopes = torch.logspace(-4, 1, 160, dtype=torch.float64)
    lengths = torch.logspace(0.5, 4, 140).round().int().unique()
    phases = [phase_diagram(preset, slopes, lengths) for preset in ("plain", "residual")]
    plot_phases(phases, pictures["phases"])
    widths = _finite_width(settings)
    plot_finite_width(widths, settings["sites"], pictures["finite-width"])
    gradients, curves = _gradients(settings, generator)
    plot_gradients(curves, pictures["gradients"])
    trainability = trainability_map(settings["trainability"], pictures["trainability"], seed)
    return {
        "theory_against_measurement": {
            f"{line.group}, {line.label}": _summary(theory, comparison)
            for line, theory, comparison in zip(lines, predicted, measured, strict=True)
        },
        "finite_width": widths,
        "gradients": gradients,
        "trainability": trainability,
    }


def tables(store: Store, profile: str) -> list[Table]:
    """Measured steps beside the recursions, and the effect of a finite width."""
    (cell,) = cells(profile)
    return study_tables(store.load(cell))


def pictures(store: Store, profile: str, folder: Path) -> list[Path]:
    """Those that were drawn when the study was made."""
    return [path for name in DRAWN if (path := folder / FILES.format(name)).exists()]


@dataclass(frozen=True)
class Line:
    """One line of the theory-against-measurement pictures."""

    group: str
    label: str
    topology: Topology
    sigma2: float | str


def _lines(settings: Settings) -> list[Line]:
    sites = settings["sites"]
    return [
        *(Line("TT", f"s = {s:g}", Topology.plain(sites), s) for s in settings["tt_slopes"]),
        *(Line("ResTT", f"s = {s:g}", Topology.residual(sites), s) for s in settings["restt_slopes"]),
        *(Line("mixed topologies", f"no. {k}", mixed_topology(sites, k), "auto") for k in settings["mixed_seeds"]),
    ]


def _measured(line: Line, settings: Settings, x: Tensor, seed: int) -> Comparison:
    return compare_in_blocks(
        line.topology,
        x,
        sigma2=line.sigma2,
        bond_dim=settings["bond_dim"],
        outputs=settings["outputs"],
        runs=settings["runs"],
        seed=seed,
    )


def _draw_profiles(
    lines: list[Line], predicted: list[Profile], measured: list[Comparison], pictures: dict[str, Path]
) -> None:
    profiles: dict[str, dict[str, tuple[Profile, Profile | None]]] = {}
    steps: dict[str, dict[str, Comparison]] = {}
    for line, theory, comparison in zip(lines, predicted, measured, strict=True):
        steps.setdefault(line.group, {})[line.label] = comparison
        drawn = profiles.setdefault(line.group, {})
        if line.group in ("TT", "ResTT") or not drawn:  # one jagged profile is readable, three are not
            drawn[line.label] = (theory, comparison.profile)
    plot_profiles(profiles, pictures["profiles"])
    plot_steps(steps, pictures["steps"])


def _draw_conventions(
    settings: Settings, lines: list[Line], predicted: list[Profile], measured: list[Comparison], path: Path
) -> None:
    number = next(
        n for n, line in enumerate(lines) if line.group == "ResTT" and line.sigma2 == settings["restt_slopes"][1]
    )
    line = lines[number]
    printed = predict(line.topology, 1.0, line.sigma2, settings["bond_dim"], convention="paper")
    plot_conventions(measured[number].profile, predicted[number], printed, path)


def _summary(theory: Profile, comparison: Comparison) -> dict[str, Any]:
    measured = comparison.profile
    return {
        "q_steps": _step_summary(comparison.q),
        "chi_steps": _step_summary(comparison.chi),
        **{
            f"{kind}_log_{name}": _numbers(getattr(source, f"{prefix}log_{name}"))
            for name in ("q", "chi")
            for kind, source, prefix in (
                ("predicted", theory, ""),
                ("measured", measured, ""),
                ("median", measured, "median_"),
            )
        },
        "error_log_q": _numbers(measured.log_q_error),
        "error_log_chi": _numbers(measured.log_chi_error),
    }


def _step_summary(ratios: StepRatios) -> dict[str, float]:
    """Measured over expected steps: 1 in the mean, z of order 1, mean z² near 1."""
    return {
        "mean_ratio": round(ratios.overall, 6),
        "mean_ratio_error": round(float(ratios.values.mean(dim=1).std()) / math.sqrt(len(ratios.values)), 6),
        "largest_site_z": round(float(ratios.z.abs().max()), 3),
        "mean_square_site_z": round(float(ratios.z.square().mean()), 3),
        "largest_profile_z": round(float(ratios.profile_z.abs().max()), 3),
    }


def _finite_width(settings: Settings) -> list[dict[str, float]]:
    """A plain train at s = 1: what becomes of q from site 1 to N-1, in the mean and in the typical run."""
    x = Trigonometric()(torch.rand(1, settings["sites"], generator=torch.Generator().manual_seed(settings["seed"])))
    rows = []
    for bond_dim in settings["widths"]:
        comparison = compare_in_blocks(
            Topology.plain(settings["sites"]),
            x,
            sigma2=1.0,
            bond_dim=bond_dim,
            outputs=1,
            runs=settings["width_runs"],
            seed=settings["seed"],
        )
        logs = comparison.profile.run_log_q
        assert logs is not None
        change = logs[:, -2] - logs[:, 0]
        rows.append(
            {
                "bond_dim": bond_dim,
                "log_mean": float(change.logsumexp(0)) - math.log(len(change)),
                "log_median": float(change.median()),
                "log_lower_quartile": float(change.quantile(0.25)),
                "log_upper_quartile": float(change.quantile(0.75)),
                "predicted_log_mean": 0.0,
                "predicted_log_typical": (settings["sites"] - 2) * typical_log_decay(bond_dim),
            }
        )
    return rows


def _gradients(settings: Settings, generator: torch.Generator) -> tuple[dict[str, Any], dict[str, Tensor]]:
    plain, residual = settings["plain_sites"], settings["residual_sites"]
    compared = {
        f"TT, N = {plain}, Gaussian": (Topology.plain(plain), "balanced"),
        f"TT, N = {plain}, orthogonal": (Topology.plain(plain), "orthogonal"),
        f"ResTT, N = {residual}, default": (Topology.residual(residual), "balanced"),
    }
    summary, curves = {}, {}
    for label, (topology, init) in compared.items():
        x = Trigonometric()(torch.rand(settings["gradient_batch"], topology.sites, generator=generator))
        gradients = gradients_in_blocks(
            topology,
            x,
            bond_dim=settings["gradient_bond_dim"],
            outputs=settings["outputs"],
            runs=settings["gradient_runs"],
            init=init,
            seed=settings["seed"],
        )
        curves[label] = gradients
        summary[label] = {
            "spread_all_sites": gradient_spread(gradients),
            "spread_inner_sites": gradient_spread(gradients[:, 1:-1]),
            "dtype": str(x.dtype).removeprefix("torch."),
            "bond_dim": settings["gradient_bond_dim"],
            "runs": settings["gradient_runs"],
        }
    return summary, curves


def _numbers(values: Tensor | None) -> list[float | None]:
    """Six digits are enough for a picture; a dead signal's -inf has no JSON and becomes null."""
    if values is None:
        return []
    return [round(value, 6) if math.isfinite(value) else None for value in values.tolist()]


# On the CPU whatever else there is: much of it is in float64.
EXPERIMENT = Experiment("fig-meanfield", TITLE, cells, compute, tables, pictures, device="cpu")
