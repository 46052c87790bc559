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
from restt.meanfield import Comparison, Profile, phase_diagram, predict, typical_log_decay
from restt.meanfield.comparison import (
    StepRatios,
    compare_in_blocks,
    gradient_spread,
    gradients_in_blocks,
    mixed_topology,
)
from restt.meanfield.plots import (
    plot_conventions,
    plot_finite_width,
    plot_gradients,
    plot_phases,
    plot_profiles,
    plot_steps,
)
from restt.topology import Topology
from restt_paper import PICTURES, fig_trainability
from restt_paper.cells import Cell, changed_since
from restt_paper.fig_trainability import trainability_map
from restt_paper.meanfield_tables import study_tables
from restt_paper.store import Store
from restt_paper.tables import Table

TITLE = "Mean-field theory, measured"
DEVICE = "cpu"  # whatever else there is: much of it is in float64
SEED = 0
OUTPUTS = 10
TT_SLOPES = (0.9, 1.0, 1.1)
RESTT_SLOPES = (0.001, 0.01, 0.1)
MIXED_SEEDS = (1, 2, 3)
# Of results whose settings do not name them, see changed_since.
UNNAMED = {
    "outputs": 10,
    "tt_slopes": (0.9, 1.0, 1.1),
    "restt_slopes": (0.001, 0.01, 0.1),
    "mixed_seeds": (1, 2, 3),
}


@dataclass(frozen=True)
class Setting:
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


SETTINGS = {
    # N = 196 and r = 100 are the paper's (Sec. V-B).
    "paper": Setting(196, 100, 200, 2, (5, 10, 20, 50, 100), 400, 1000, 10_000, 20, 11),
    "quick": Setting(196, 20, 60, 2, (5, 10, 20, 50), 60, 300, 1000, 10, 5),
}


DRAWN = {
    name: f"fig-meanfield-{name}.png"
    for name in ("conventions", "profiles", "steps", "finite-width", "gradients", "phases", "trainability")
}


def cells(profile: str) -> list[Cell]:
    """One: the measurements share their models."""
    setting = SETTINGS[check_choice("profile", profile, SETTINGS)]
    settings = {
        "profile": profile,
        "setting": asdict(setting),
        "trainability": fig_trainability.map_settings(fig_trainability.SETTINGS[profile]),
        "seed": SEED,
        **changed_since(
            UNNAMED, outputs=OUTPUTS, tt_slopes=TT_SLOPES, restt_slopes=RESTT_SLOPES, mixed_seeds=MIXED_SEEDS
        ),
    }
    return [Cell("fig-meanfield", "study", settings)]


def compute(cell: Cell, store: Store) -> dict[str, Any]:
    """Measure and draw.

    The pictures show every random model and are drawn here, once: the results keep summaries. So packs of results
    carry them along.
    """
    profile = cell.settings["profile"]
    setting = SETTINGS[profile]
    require_matplotlib()  # before minutes of work that could not be shown
    folder = store.folder / PICTURES
    folder.mkdir(parents=True, exist_ok=True)
    pictures = {name: folder / file for name, file in DRAWN.items()}
    generator = torch.Generator().manual_seed(SEED)
    x = Trigonometric()(torch.rand(setting.batch, setting.sites, generator=generator))
    cases = _cases(setting.sites)
    measured = [_measured(case, setting, x, SEED + number) for number, case in enumerate(cases)]
    predicted = [predict(case.topology, 1.0, case.sigma2, setting.bond_dim) for case in cases]
    _draw_profiles(cases, predicted, measured, pictures)
    _draw_conventions(setting, cases, predicted, measured, pictures["conventions"])
    slopes = torch.logspace(-4, 1, 160, dtype=torch.float64)
    lengths = torch.logspace(0.5, 4, 140).round().int().unique()
    phases = [phase_diagram(preset, slopes, lengths) for preset in ("plain", "residual")]
    plot_phases(phases, pictures["phases"])
    widths = _finite_width(setting)
    plot_finite_width(widths, setting.sites, pictures["finite-width"])
    gradients, curves = _gradients(setting, generator)
    plot_gradients(curves, pictures["gradients"])
    trainability = trainability_map(fig_trainability.SETTINGS[profile], pictures["trainability"], SEED)
    return {
        "theory_against_measurement": {
            f"{case.group}, {case.label}": _summary(theory, comparison)
            for case, theory, comparison in zip(cases, predicted, measured, strict=True)
        },
        "finite_width": widths,
        "gradients": gradients,
        "trainability": trainability,
    }


def tables(store: Store, profile: str) -> list[Table]:
    """Does the measured signal follow the recursions, and what does a finite width do?"""
    (cell,) = cells(profile)
    return study_tables(store.load(cell))


def pictures(store: Store, profile: str, folder: Path) -> list[Path]:
    """Those that were drawn when the study was made."""
    return [path for file in DRAWN.values() if (path := folder / file).exists()]


@dataclass(frozen=True)
class Case:
    """One line of the theory-against-measurement pictures."""

    group: str
    label: str
    topology: Topology
    sigma2: float | str


def _cases(sites: int) -> list[Case]:
    return [
        *(Case("TT", f"s = {s:g}", Topology.plain(sites), s) for s in TT_SLOPES),
        *(Case("ResTT", f"s = {s:g}", Topology.residual(sites), s) for s in RESTT_SLOPES),
        *(Case("mixed topologies", f"no. {k}", mixed_topology(sites, k), "auto") for k in MIXED_SEEDS),
    ]


def _measured(case: Case, setting: Setting, x: Tensor, seed: int) -> Comparison:
    return compare_in_blocks(
        case.topology,
        x,
        sigma2=case.sigma2,
        bond_dim=setting.bond_dim,
        outputs=OUTPUTS,
        runs=setting.runs,
        seed=seed,
    )


def _draw_profiles(
    cases: list[Case], predicted: list[Profile], measured: list[Comparison], pictures: dict[str, Path]
) -> None:
    profiles: dict[str, dict[str, tuple[Profile, Profile | None]]] = {}
    steps: dict[str, dict[str, Comparison]] = {}
    for case, theory, comparison in zip(cases, predicted, measured, strict=True):
        steps.setdefault(case.group, {})[case.label] = comparison
        drawn = profiles.setdefault(case.group, {})
        if case.group in ("TT", "ResTT") or not drawn:  # one jagged profile is readable, three are not
            drawn[case.label] = (theory, comparison.profile)
    plot_profiles(profiles, pictures["profiles"])
    plot_steps(steps, pictures["steps"])


def _draw_conventions(
    setting: Setting, cases: list[Case], predicted: list[Profile], measured: list[Comparison], path: Path
) -> None:
    number = next(n for n, case in enumerate(cases) if case.group == "ResTT" and case.sigma2 == RESTT_SLOPES[1])
    case = cases[number]
    printed = predict(case.topology, 1.0, case.sigma2, setting.bond_dim, convention="paper")
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


def _finite_width(setting: Setting) -> list[dict[str, float]]:
    """A plain train at s = 1: what becomes of q from site 1 to N-1, in the mean and in the typical run."""
    x = Trigonometric()(torch.rand(1, setting.sites, generator=torch.Generator().manual_seed(SEED)))
    rows = []
    for bond_dim in setting.widths:
        comparison = compare_in_blocks(
            Topology.plain(setting.sites),
            x,
            sigma2=1.0,
            bond_dim=bond_dim,
            outputs=1,
            runs=setting.width_runs,
            seed=SEED,
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
                "predicted_log_typical": (setting.sites - 2) * typical_log_decay(bond_dim),
            }
        )
    return rows


def _gradients(setting: Setting, generator: torch.Generator) -> tuple[dict[str, Any], dict[str, Tensor]]:
    cases = {
        f"TT, N = {setting.plain_sites}, Gaussian": (Topology.plain(setting.plain_sites), "balanced"),
        f"TT, N = {setting.plain_sites}, orthogonal": (Topology.plain(setting.plain_sites), "orthogonal"),
        f"ResTT, N = {setting.residual_sites}, default": (Topology.residual(setting.residual_sites), "balanced"),
    }
    summary, curves = {}, {}
    for label, (topology, init) in cases.items():
        x = Trigonometric()(torch.rand(8, topology.sites, generator=generator))
        gradients = gradients_in_blocks(
            topology,
            x,
            bond_dim=setting.gradient_bond_dim,
            outputs=OUTPUTS,
            runs=setting.gradient_runs,
            init=init,
            seed=SEED,
        )
        curves[label] = gradients
        summary[label] = {
            "spread_all_sites": gradient_spread(gradients),
            "spread_inner_sites": gradient_spread(gradients[:, 1:-1]),
            "dtype": str(x.dtype).removeprefix("torch."),
            "bond_dim": setting.gradient_bond_dim,
            "runs": setting.gradient_runs,
        }
    return summary, curves


def _numbers(values: Tensor | None) -> list[float | None]:
    """Six digits are enough for a picture; a dead signal's -inf has no JSON and becomes null."""
    if values is None:
        return []
    return [round(value, 6) if math.isfinite(value) else None for value in values.tolist()]
