"""The GPU targets (N=196, I=2, O=10, batch 512, full training step with Adam) beside what was measured."""

from __future__ import annotations

from gpu.measure import Record
from restt_bench.targets import Target

STEP_MS = {"tf32": {20: 0.3, 50: 0.6, 100: 1.0}, "bf16": {20: 0.25, 50: 0.45, 100: 0.7}}
TEN_RUNS_TIMES_ONE = {20: 3.0, 50: 4.0, 100: 5.0}
PEAK_GIB = 0.5  # at r = 100
INFERENCE_MS = 5.0  # of 10,000 images at r = 100
PATCHES_TIMES_ONE = 4.5  # I = 8 against I = 2 at r = 100


def verdicts(timed: Record) -> list[Record]:
    """Every target of which the measurement exists, met or missed and by how much."""
    steps = {
        (step["bond"], step["precision"], step["runs"], step["width"]): step
        for step in timed["steps"]
        if "step_ms" in step and step["loss"] == "mse"
    }
    found: list[Target] = []
    for precision, bounds in STEP_MS.items():
        for bond, bound in bounds.items():
            one = steps.get((bond, precision, 1, 2))
            if one is None:
                continue
            name = f"r={bond}, {precision}"
            found.append(Target(f"{name}: one run", "at most", bound, "ms", _rounded(one["step_ms"])))
            ten = steps.get((bond, precision, 10, 2))
            if ten is not None:
                times = _rounded(ten["step_ms"] / one["step_ms"])
                found.append(Target(f"{name}: ten runs", "at most", TEN_RUNS_TIMES_ONE[bond], "× one run", times))
            patches = steps.get((bond, precision, 1, 8))
            if patches is not None:
                times = _rounded(patches["step_ms"] / one["step_ms"])
                found.append(Target(f"{name}: patches, I=8", "at most", PATCHES_TIMES_ONE, "× I=2", times))
            if bond == 100 and "peak_GiB" in one:
                found.append(Target(f"{name}: peak memory", "at most", PEAK_GIB, "GiB", _rounded(one["peak_GiB"])))
    for row in timed["inference"]:
        if row["bond"] == 100 and "ms" in row:
            what = f"r=100, {row['precision']}: inference of {row['images']} images"
            found.append(Target(what, "at most", INFERENCE_MS, "ms", _rounded(row["ms"])))
    return [target.as_dict() for target in found]


def speed_ups(timed: Record) -> list[Record]:
    """How many times longer everybody else's step takes than ours with tf32 products."""
    own = {
        step["bond"]: step["step_ms"]
        for step in timed["steps"]
        if "step_ms" in step and (step["precision"], step["runs"], step["width"]) == ("tf32", 1, 2)
        and step["loss"] == "mse"
    }  # fmt: skip
    return [
        {"name": peer["name"], "bond": peer["bond"], "times": _rounded(peer["step_ms"] / own[peer["bond"]])}
        for peer in timed["peers"]
        if "step_ms" in peer and peer["bond"] in own
    ]


def _rounded(number: float) -> float:
    return round(number, 4)
