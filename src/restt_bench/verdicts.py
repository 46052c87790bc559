"""From rows to statements: targets met or missed, exponents beside the claims."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from restt_bench import targets
from restt_bench.case import Case
from restt_bench.growth import CLAIMS, FULL_TENSOR, MEMORY, Growth, fit_exponential, fit_power
from restt_bench.implementations import chosen
from restt_bench.race import Row, median_ms, row_of
from restt_bench.suites import IMAGE, IMAGES, TABLE, Suite
from restt_bench.targets import Target

# The fit that speaks for large sizes uses this many of the largest points.
LARGEST = 3


def suite_targets(suite: Suite, rows: list[Row]) -> list[Target]:
    """The targets this suite decides, on the sizes they are stated for; quick sizes decide none."""
    found: list[Target] = []
    for case in suite.cases:
        if suite.name == "main" and replace(case, bond_dim=IMAGE.bond_dim) == IMAGE:
            found += _image_targets(case, rows)
        if suite.name == "main" and _sizes(case) == _sizes(IMAGE) and case.on_gpu and case.runs is None:
            found += _gpu_targets(case, rows)
        if suite.name == "inference" and case.on_gpu and case.batch == IMAGES:
            own = median_ms(rows, chosen(case.device), case, "infer")
            if own is not None:
                what = f"r={case.bond_dim}, {case.precision}: inference of {case.batch} images"
                found.append(Target(what, "at most", targets.GPU_INFERENCE_MS, "ms", round(own, 4)))
    if suite.name == "small" and TABLE in suite.cases:
        found += _table_targets(suite, rows)
    if suite.name in ("scaling-n", "scaling-b") and suite.axis is not None:
        fitted = _growth(suite, rows, chosen(suite.cases[0].device))
        full_size = max(getattr(case, suite.axis) for case in suite.cases) > IMAGE.sites
        if fitted is not None and full_size:
            letter = CLAIMS[suite.axis].axis
            what = f"exponent of a step's time in {letter}"
            found.append(Target(what, "at most", targets.LINEAR_EXPONENT, "", round(fitted.slope, 3)))
    return found


def _image_targets(case: Case, rows: list[Row]) -> list[Target]:
    own, bond = median_ms(rows, chosen(case.device), case), case.bond_dim
    if own is None:
        return []
    found = []
    limit = median_ms(rows, "limit", case)
    if limit is not None and bond in targets.MAX_TIMES_LIMIT:
        bound = targets.MAX_TIMES_LIMIT[bond]
        found.append(Target(f"r={bond}: step against bare GEMMs", "at most", bound, "×", round(own / limit, 3)))
    for baseline, bounds in targets.MIN_SPEEDUP.items():
        theirs = median_ms(rows, baseline, case)
        if theirs is not None and bond in bounds:
            what = f"r={bond}: speed-up over {baseline}"
            found.append(Target(what, "at least", bounds[bond], "×", round(theirs / own, 3)))
    return found


def _sizes(case: Case) -> tuple[int, ...]:
    return case.sites, case.outputs, case.batch


def _gpu_targets(case: Case, rows: list[Row]) -> list[Target]:
    """One run's step, ten runs and wide sites against it, and its memory."""
    bond, name = case.bond_dim, f"r={case.bond_dim}, {case.precision}"
    own = median_ms(rows, chosen(case.device), case)
    bound = targets.GPU_STEP_MS.get(case.precision, {}).get(bond)
    if own is None or bound is None or case.feature_dim != IMAGE.feature_dim:
        return []
    found = [Target(f"{name}: one run", "at most", bound, "ms", round(own, 4))]
    many = median_ms(rows, chosen(case.device), replace(case, runs=targets.GPU_RUNS))
    if many is not None:
        what = f"{name}: {targets.GPU_RUNS} runs"
        found.append(Target(what, "at most", targets.GPU_RUNS_TIMES_ONE[bond], "× one run", round(many / own, 4)))
    wide = median_ms(rows, chosen(case.device), replace(case, feature_dim=targets.GPU_PATCH_WIDTH))
    if wide is not None:
        what = f"{name}: patches, I={targets.GPU_PATCH_WIDTH}"
        found.append(Target(what, "at most", targets.GPU_PATCHES_TIMES_ONE, "× I=2", round(wide / own, 4)))
    if bond == 100:
        row = row_of(rows, chosen(case.device), case)
        if row is not None and "peak_gib" in row:
            found.append(Target(f"{name}: peak memory", "at most", targets.GPU_PEAK_GIB, "GiB", row["peak_gib"]))
    return found


def _table_targets(suite: Suite, rows: list[Row]) -> list[Target]:
    one = median_ms(rows, chosen(TABLE.device), TABLE)
    if one is None:
        return []
    found = [Target("full-batch step, one run", "at most", targets.SMALL_STEP_MS, "ms", one)]
    many = median_ms(rows, chosen(TABLE.device), replace(TABLE, runs=targets.SMALL_RUNS))
    if many is not None:
        what = f"{targets.SMALL_RUNS} runs side by side against one"
        found.append(Target(what, "at most", targets.SMALL_RUNS_TIMES_ONE, "×", round(many / one, 3)))
    return found


def suite_exponents(suite: Suite, rows: list[Row]) -> list[dict[str, Any]]:
    """Per implementation the measured growth along the suite's axis, beside what the paper claims and what holds."""
    if not suite.is_sweep or suite.axis is None:
        return []
    found = []
    for implementation in dict.fromkeys(row["implementation"] for row in rows):
        everything = _growth(suite, rows, implementation)
        if everything is None:
            continue
        entry: dict[str, Any] = {"implementation": implementation, "axis": suite.axis}
        if implementation == "full-tensor":
            fitted = _growth(suite, rows, implementation, exponential=True, largest=LARGEST)
            assert fitted is not None
            width = suite.cases[0].feature_dim
            entry |= {"paper": FULL_TENSOR, "factor_per_site": round(fitted.factor, 3), "claimed_factor": width}
        else:
            largest = _growth(suite, rows, implementation, largest=LARGEST)
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
    suite: Suite, rows: list[Row], implementation: str, *, exponential: bool = False, largest: int = 0
) -> Growth | None:
    points = [
        (float(row["case"][suite.axis]), float(row["step"]["median"]))
        for row in rows
        if row["implementation"] == implementation and "step" in row
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
