"""What the speed should be, and whether it is."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

# At N=196, I=2, O=10, batch 512, a full training step on 2 cores, by bond dimension.
MAX_TIMES_LIMIT = {20: 2.5, 50: 2.0, 100: 1.5}
MIN_SPEEDUP = {
    "textbook": {20: 6.0, 50: 12.0, 100: 15.0},
    "tensorkrowch": {20: 20.0, 50: 60.0, 100: 200.0},
}
# At N=13, B=354, r=20, full batch.
SMALL_STEP_MS = 1.5
SMALL_RUNS, SMALL_RUNS_TIMES_ONE = 64, 10.0
# "Linear" as an exponent fitted to timings, whose own spread is a few hundredths.
LINEAR_EXPONENT = 1.05
# Of one numpy row, 20 columns at r = 20.
SERVED_ROW_MS = 0.5
# Forward and backward of 10,000 sites with √N states kept, as a multiple of those with all kept.
LONG_CHAIN_TIMES = 1.5

# On an H200 at the same sizes, by precision of products and bond dimension.
GPU_STEP_MS = {"tf32": {20: 0.25, 50: 0.35, 100: 0.7}, "bf16": {20: 0.25, 50: 0.45, 100: 0.7}}
GPU_RUNS, GPU_RUNS_TIMES_ONE = 10, {20: 3.0, 50: 4.0, 100: 5.0}
GPU_PATCH_WIDTH, GPU_PATCHES_TIMES_ONE = 8, 4.5  # against I = 2 at r = 100
GPU_PEAK_GIB = 0.5  # at r = 100
GPU_INFERENCE_MS = 5.0  # of 10,000 images at r = 100


@dataclass(frozen=True)
class Target:
    """One bound and what was measured against it."""

    what: str
    kind: Literal["at most", "at least"]
    bound: float
    unit: str
    measured: float

    @property
    def met(self) -> bool:
        return self.measured <= self.bound if self.kind == "at most" else self.measured >= self.bound

    @property
    def verdict(self) -> str:
        """``met``, or by how much it is missed.

        >>> Target("a step", "at most", 1.5, "ms", 3.0).verdict
        'missed: 2.00 times the bound'
        >>> Target("a speed-up", "at least", 6.0, "×", 3.0).verdict
        'missed: 0.50 of the bound'
        """
        if self.met:
            return "met"
        if self.bound == 0:
            return f"missed: {self.measured:g} instead of 0"
        share = self.measured / self.bound
        return f"missed: {share:.2f} times the bound" if self.kind == "at most" else f"missed: {share:.2f} of the bound"

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "met": self.met, "verdict": self.verdict}
