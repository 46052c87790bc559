"""What the speed should be, and whether it is."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal


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
        """Whether the bound holds."""
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
        """Fields and verdict, ready for JSON."""
        return {**asdict(self), "met": self.met, "verdict": self.verdict}
