"""The mean-field analysis (paper, Sec. IV and Appendix B), measured: pictures and numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from restt._common.drawing import require_matplotlib
from restt._common.errors import check_choice
from restt.features import Trigonometric
from restt.meanfield import Profile, predict
from restt.topology import Topology
from restt_paper.experiments import PICTURES, Cell, Context, Experiment, Result, Settings, Store
from restt_paper.meanfield import plots
from restt_paper.meanfield.comparison import (
    Comparison,
    StepRatios,
    compare_in_blocks,
    gradient_spread,
    gradients_in_blocks,
    mixed_topology,
)
from restt_paper.meanfield.trainability import (
    MAP_SIZES,
    PhaseDiagram,
    phase_diagram,
    trainability_map,
    typical_log_decay,
)
from restt_paper.table import NOT_YET, Table, fixed

TITLE = "Mean-field theory, measured"
FILES = "fig-meanfield-{}.png"
AGREEMENT = "Mean-field theory against measurement: step of the mean square along the chain, measured / predicted"
AGREEMENT_COLUMNS = ("model", "forward q", "backward χ", "largest deviation in standard errors", "agrees")
WIDTH = "Plain TT at σ_w² = 1: change of log q along the chain by bond dimension"
WIDTH_COLUMNS = ("r", "theory for the mean", "measured mean", "theory for the typical run", "measured median")
# Over a whole profile of a few hundred sites, deviations up to this many standard errors are chance.
CHANCE = 5.0


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

# Each shows every random model, which the results do not hold.
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
    options = {name: settings[name] for name in ("bond_dim", "outputs", "runs")}
    for number, line in enumerate(lines):
        line.measured = compare_in_blocks(line.topology, x, sigma2=line.sigma2, seed=seed + number, **options)
    _draw_profiles(lines, pictures)
    middle = next(line for line in lines if line.group == "ResTT" and line.sigma2 == settings["restt_slopes"][1])
    printed = predict(middle.topology, 1.0, middle.sigma2, settings["bond_dim"], convention="paper")
    plots.plot_conventions(middle.measured.profile, middle.theory, printed, pictures["conventions"])
    grid, lengths = torch.logspace(-4, 1, 160, dtype=torch.float64), torch.logspace(0.5, 4, 140)
    plots.plot_phases(_diagrams(("plain", "residual"), grid, lengths), pictures["phases"])
    widths = _finite_width(settings)
    plots.plot_finite_width(widths, settings["sites"], pictures["finite-width"])
    gradients, curves = _gradients(settings, generator)
    plots.plot_gradients(curves, pictures["gradients"])
    trainings, points = trainability_map(settings["trainability"], seed)
    presets, _, titles = zip(*settings["trainability"]["panels"], strict=True)
    grid, lengths = torch.logspace(-4.6, 1.3, 160, dtype=torch.float64), torch.logspace(0.5, 3, 120)
    plots.plot_phases(_diagrams(presets, grid, lengths), pictures["trainability"], points, titles)
    return {
        "theory_against_measurement": {f"{line.group}, {line.label}": _summary(line) for line in lines},
        "finite_width": widths,
        "gradients": gradients,
        "trainability": {"cells": trainings},
    }


def _diagrams(presets: Sequence[str], sigma2: Tensor, lengths: Tensor) -> list[PhaseDiagram]:
    return [phase_diagram(preset, sigma2, lengths.round().int().unique()) for preset in presets]


def tables(store: Store, profile: str) -> list[Table]:
    """Measured steps beside the recursions, and the effect of a finite width."""
    content = store.load(cells(profile)[0])
    agreement_rows: tuple[tuple[str, ...], ...] = ((NOT_YET,) * 5,)
    width_rows = agreement_rows
    agreement_notes: tuple[str, ...] = ()
    width_notes: tuple[str, ...] = ()
    if content is not None:
        settings, result = content["settings"], content["result"]
        agreement_rows = tuple(_agreement(*case) for case in result["theory_against_measurement"].items())
        width_rows = tuple(_width(row) for row in result["finite_width"])
        agreement_notes = (
            f"N = {settings['sites']}, r = {settings['bond_dim']}, {settings['runs']} random models a case. It agrees "
            f"if no site deviates by {CHANCE:g} standard errors.",
        )
        width_notes = (
            f"{settings['width_runs']} random models a row. The theory's mean is carried by rare runs, so at small r a "
            "measured mean falls short of it; the typical run decays, faster the smaller r is.",
        )
    return [
        Table(AGREEMENT, AGREEMENT_COLUMNS, agreement_rows, agreement_notes, details=True),
        Table(WIDTH, WIDTH_COLUMNS, width_rows, width_notes, details=True),
    ]


def _agreement(name: str, case: Mapping[str, Any]) -> tuple[str, ...]:
    steps = case["q_steps"], case["chi_steps"]
    largest = max(step["largest_profile_z"] for step in steps)
    ratios = [f"{fixed(step['mean_ratio'], 4)} ± {fixed(step['mean_ratio_error'], 4)}" for step in steps]
    return name, *ratios, fixed(largest, 1), "yes" if largest < CHANCE else "no"


def _width(row: Mapping[str, float]) -> tuple[str, ...]:
    names = ("predicted_log_mean", "log_mean", "predicted_log_typical", "log_median")
    return str(row["bond_dim"]), *(fixed(row[name], 1) for name in names)


def pictures(store: Store, profile: str, folder: Path) -> list[Path]:
    """Pictures that were drawn when the study was made."""
    return [path for name in DRAWN if (path := folder / FILES.format(name)).exists()]


@dataclass
class Line:
    """One line of the theory-against-measurement pictures."""

    group: str
    label: str
    topology: Topology
    sigma2: float | str
    theory: Profile
    measured: Comparison = field(init=False)


def _lines(settings: Settings) -> list[Line]:
    sites = settings["sites"]
    cases = [
        *(("TT", f"s = {s:g}", Topology.plain(sites), s) for s in settings["tt_slopes"]),
        *(("ResTT", f"s = {s:g}", Topology.residual(sites), s) for s in settings["restt_slopes"]),
        *(("mixed topologies", f"no. {k}", mixed_topology(sites, k), "auto") for k in settings["mixed_seeds"]),
    ]
    return [Line(*case, predict(case[2], 1.0, case[3], settings["bond_dim"])) for case in cases]


def _draw_profiles(lines: Sequence[Line], pictures: Mapping[str, Path]) -> None:
    profiles: dict[str, dict[str, tuple[Profile, Profile]]] = {}
    steps: dict[str, dict[str, Comparison]] = {}
    for line in lines:
        steps.setdefault(line.group, {})[line.label] = line.measured
        drawn = profiles.setdefault(line.group, {})
        if line.group in ("TT", "ResTT") or not drawn:  # one jagged profile is readable, three are not
            drawn[line.label] = (line.theory, line.measured.profile)
    plots.plot_profiles(profiles, pictures["profiles"])
    plots.plot_steps(steps, pictures["steps"])


def _summary(line: Line) -> dict[str, Any]:
    measured = line.measured.profile
    logs = {
        f"{kind}_log_{name}": _numbers(getattr(source, f"{prefix}log_{name}"))
        for name in ("q", "chi")
        for kind, source, prefix in (
            ("predicted", line.theory, ""),
            ("measured", measured, ""),
            ("median", measured, "median_"),
        )
    }
    return {
        "q_steps": _step_summary(line.measured.q),
        "chi_steps": _step_summary(line.measured.chi),
        **logs,
        "error_log_q": _numbers(measured.log_q_error),
        "error_log_chi": _numbers(measured.log_chi_error),
    }


def _step_summary(ratios: StepRatios) -> dict[str, float]:
    """Measured over expected steps: 1 in the mean, z of order 1, mean z² near 1."""
    return {
        "mean_ratio": round(float(ratios.values.mean()), 6),
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
        options = {"runs": settings["width_runs"], "seed": settings["seed"], "bond_dim": bond_dim, "outputs": 1}
        logs = compare_in_blocks(Topology.plain(settings["sites"]), x, sigma2=1.0, **options).profile.run_log_q
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
        sizes = {"bond_dim": settings["gradient_bond_dim"], "outputs": settings["outputs"]}
        options = {"runs": settings["gradient_runs"], "seed": settings["seed"]}
        gradients = gradients_in_blocks(topology, x, init=init, **sizes, **options)
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
EXPERIMENT = Experiment("fig-meanfield", TITLE, cells, compute, tables, pictures=pictures, device="cpu")
