"""Tables of ``fig-meanfield``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from restt_paper.engine.table import NOT_YET, Table, fixed

AGREEMENT = "Mean-field theory against measurement: step of the mean square along the chain, measured / predicted"
AGREEMENT_COLUMNS = ("model", "forward q", "backward χ", "largest deviation in standard errors", "agrees")
WIDTH = "Plain TT at σ_w² = 1: change of log q along the chain by bond dimension"
WIDTH_COLUMNS = ("r", "theory for the mean", "measured mean", "theory for the typical run", "measured median")
# Over a whole profile of a few hundred sites, deviations up to this many standard errors are chance.
CHANCE = 5.0


def study_tables(found: Mapping[str, Any] | None) -> list[Table]:
    """From the file of the study, None where it is not there yet."""
    if found is None:
        return [Table(title, columns, ((NOT_YET,) * 5,)) for title, columns in _HEADS]
    settings, result = found["settings"], found["result"]
    cases = result["theory_against_measurement"].items()
    return [
        Table(
            AGREEMENT,
            AGREEMENT_COLUMNS,
            tuple(_agreement(name, case) for name, case in cases),
            (
                f"N = {settings['sites']}, r = {settings['bond_dim']}, {settings['runs']} random models a case. It "
                f"agrees if no site deviates by {CHANCE:g} standard errors.",
            ),
            details=True,
        ),
        Table(
            WIDTH,
            WIDTH_COLUMNS,
            tuple(_width(row) for row in result["finite_width"]),
            (
                f"{settings['width_runs']} random models a row. The theory's mean is carried by rare runs, so at small "
                "r a measured mean falls short of it; the typical run decays, faster the smaller r is.",
            ),
            details=True,
        ),
    ]


_HEADS = ((AGREEMENT, AGREEMENT_COLUMNS), (WIDTH, WIDTH_COLUMNS))


def _agreement(name: str, case: Mapping[str, Any]) -> tuple[str, ...]:
    steps = case["q_steps"], case["chi_steps"]
    largest = max(step["largest_profile_z"] for step in steps)
    ratios = [f"{fixed(step['mean_ratio'], 4)} ± {fixed(step['mean_ratio_error'], 4)}" for step in steps]
    return name, *ratios, fixed(largest, 1), "yes" if largest < CHANCE else "no"


def _width(row: Mapping[str, float]) -> tuple[str, ...]:
    names = ("predicted_log_mean", "log_mean", "predicted_log_typical", "log_median")
    return str(row["bond_dim"]), *(fixed(row[name], 1) for name in names)
