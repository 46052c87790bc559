"""From rows to statements: targets met or missed, exponents beside the claims."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from restt_bench import targets
from restt_bench.case import Case
from restt_bench.complexity import CLAIMS, FULL_TENSOR, MEMORY
from restt_bench.contenders.registry import CHOSEN
from restt_bench.fit import Growth, fit_exponential, fit_power
from restt_bench.race import Row, median_ms
from restt_bench.suites import IMAGE, TABLE, Suite
from restt_bench.targets import Target

# The fit that speaks for large sizes uses this many of the largest points.
LARGEST = 3


def suite_targets(suite: Suite, rows: list[Row]) -> list[Target]:
    """The targets this suite decides, on the sizes they are stated for; quick sizes decide none."""
    found: list[Target] = []
    for case in suite.cases:
        if suite.name == "main" and replace(case, bond_dim=IMAGE.bond_dim) == IMAGE:
            found += _image_targets(case, rows)
    if suite.name == "small" and TABLE in suite.cases:
        found += _table_targets(suite, rows)
    if suite.name in ("scaling-n", "scaling-b") and suite.axis is not None:
        fitted = _growth(suite, rows, CHOSEN)
        full_size = max(getattr(case, suite.axis) for case in suite.cases) > IMAGE.sites
        if fitted is not None and full_size:
            letter = CLAIMS[suite.axis].axis
            what = f"exponent of a step's time in {letter}"
            found.append(Target(what, "at most", targets.LINEAR_EXPONENT, "", round(fitted.slope, 3)))
    return found


def _image_targets(case: Case, rows: list[Row]) -> list[Target]:
    own, bond = median_ms(rows, CHOSEN, case), case.bond_dim
    if own is None:
        return []
    found = []
    limit = median_ms(rows, "limit", case)
    if limit is not None and bond in targets.MAX_TIMES_LIMIT:
        bound = targets.MAX_TIMES_LIMIT[bond]
        found.append(Target(f"r={bond}: step against bare GEMMs", "at most", bound, "×", round(own / limit, 3)))
    for peer, bounds in targets.MIN_SPEEDUP.items():
        theirs = median_ms(rows, peer, case)
        if theirs is not None and bond in bounds:
            what = f"r={bond}: speed-up over {peer}"
            found.append(Target(what, "at least", bounds[bond], "×", round(theirs / own, 3)))
    return found


def _table_targets(suite: Suite, rows: list[Row]) -> list[Target]:
    one = median_ms(rows, CHOSEN, TABLE)
    if one is None:
        return []
    found = [Target("full-batch step, one run", "at most", targets.SMALL_STEP_MS, "ms", one)]
    many = median_ms(rows, CHOSEN, replace(TABLE, runs=targets.SMALL_RUNS))
    if many is not None:
        what = f"{targets.SMALL_RUNS} runs side by side against one"
        found.append(Target(what, "at most", targets.SMALL_RUNS_TIMES_ONE, "×", round(many / one, 3)))
    return found


def suite_exponents(suite: Suite, rows: list[Row]) -> list[dict[str, Any]]:
    """Per contender the measured growth along the suite's axis, beside what the paper claims and what holds."""
    if not suite.is_sweep or suite.axis is None:
        return []
    found = []
    for contender in dict.fromkeys(row["contender"] for row in rows):
        everything = _growth(suite, rows, contender)
        if everything is None:
            continue
        entry: dict[str, Any] = {"contender": contender, "axis": suite.axis}
        if contender == "full-tensor":
            fitted = _growth(suite, rows, contender, exponential=True, largest=LARGEST)
            assert fitted is not None
            width = suite.cases[0].feature_dim
            entry |= {"paper": FULL_TENSOR, "factor_per_site": round(fitted.factor, 3), "claimed_factor": width}
        else:
            largest = _growth(suite, rows, contender, largest=LARGEST)
            assert largest is not None
            entry |= {
                **asdict(CLAIMS[suite.axis]),
                "exponent": round(everything.slope, 3),
                "r_squared": round(everything.r_squared, 4),
                "exponent_of_largest": round(largest.slope, 3),
            }
            entry["axis"] = suite.axis
        found.append(entry)
    return found


def _growth(
    suite: Suite, rows: list[Row], contender: str, *, exponential: bool = False, largest: int = 0
) -> Growth | None:
    points = [
        (float(row["case"][suite.axis]), float(row["step"]["median"]))
        for row in rows
        if row["contender"] == contender and "step" in row
    ]
    points = sorted(points)[-largest:]
    if len(points) < 2:
        return None
    sizes, times = zip(*points, strict=True)
    return (fit_exponential if exponential else fit_power)(sizes, times)


def parameter_growth(suite: Suite) -> list[dict[str, Any]]:
    """Exact parameter counts along the axis, for the paper's memory claims (Sec. III-D)."""
    if suite.axis not in ("bond_dim", "sites") or not suite.is_sweep:
        return []
    found = []
    for model, topology in (("TT", "plain"), ("ResTT", "residual")):
        sizes = [getattr(case, suite.axis) for case in suite.cases]
        counts = [replace(case, topology=topology).module(0).num_parameters() for case in suite.cases]
        exponent = round(fit_power(sizes[-LARGEST:], counts[-LARGEST:]).slope, 3)
        found.append(_counted(suite, model, counts) | {"exponent": exponent})
    if suite.full_tensor:
        counts = [case.feature_dim**case.sites * case.outputs for case in suite.cases]
        found.append(_counted(suite, "full tensor", counts))
    return found


def _counted(suite: Suite, model: str, counts: list[int]) -> dict[str, Any]:
    sizes = [case.as_dict()[suite.axis or ""] for case in suite.cases]
    return {"model": model, "paper": MEMORY[model], "axis": suite.axis, "sizes": sizes, "parameters": counts}
