"""No speed-up without the same numbers: every contender against the reference before anything is timed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from restt.chain.precision import current_precision
from restt_bench.case import Case
from restt_bench.contenders.base import Contender

# Largest error allowed, relative to the largest entry of the tensor compared.
TOLERANCES = {"float64": 1e-10, "float32": 1e-4}
# On a GPU float32 is multiplied as restt.chain.precision says; these are a few times its operands' rounding.
GPU_TOLERANCES = {"float32": 1e-4, "tf32": 1e-2, "bf16": 1e-1}


@dataclass(frozen=True)
class Check:
    """The worst tensor of one contender on one (scaled-down) case."""

    contender: str
    case: Case
    tensor: str
    error: float  # infinite where shapes differ or values are not finite
    allowed: float
    raised: str | None = None

    @property
    def passed(self) -> bool:
        return self.raised is None and self.error <= self.allowed

    def __str__(self) -> str:
        if self.raised is not None:
            return f"{self.contender} raised {self.raised} for {self.case}"
        verdict = "agrees with" if self.passed else "differs from"
        size = f"{self.error:.1e} of its largest entry, allowed {self.allowed:.0e}"
        return f"{self.contender} {verdict} the reference; worst in {self.tensor!r}: {size}; {self.case}"

    def as_dict(self) -> dict[str, Any]:
        """For results files, which only passed checks reach."""
        return {
            "contender": self.contender,
            "case": self.case.as_dict(),
            "worst_tensor": self.tensor,
            "error": self.error,
            "allowed": self.allowed,
        }


class ParityError(RuntimeError):
    """Some contender computes something else, so its speed means nothing. ``failures`` holds the red checks."""

    def __init__(self, failures: Sequence[Check]) -> None:
        self.failures = tuple(failures)
        lines = "\n".join(f"  {check}" for check in self.failures)
        super().__init__(f"parity is red, so nothing is timed and no speed-up is reported:\n{lines}")


def relative_error(found: Tensor, expected: Tensor) -> float:
    """Largest difference, relative to the largest expected entry; infinite for other shapes or non-finite values.

    >>> import torch
    >>> relative_error(torch.tensor([1.0, 3.0]), torch.tensor([1.0, 4.0]))
    0.25
    >>> relative_error(torch.tensor([float("nan")]), torch.tensor([1.0]))
    inf
    """
    if found.shape != expected.shape:
        return float("inf")
    if not expected.numel():
        return 0.0
    found = found.detach().to(expected)
    if not (found.isfinite().all() and expected.isfinite().all()):
        return float("inf")
    worst, scale = float((found - expected).abs().max()), float(expected.abs().max())
    return worst / scale if scale else worst


def allowed_error(case: Case) -> float:
    """The tolerance for a case's dtype, device and, on a GPU, precision."""
    if case.dtype == "float32" and case.device.startswith("cuda"):
        return GPU_TOLERANCES[current_precision()]
    return TOLERANCES[case.dtype]


def check(contender: Contender, case: Case, seed: int) -> Check | None:
    """The worst tensor of ``contender`` on this very case; None where it has nothing to compare."""
    allowed = allowed_error(case)
    try:
        pairs = contender.found_and_expected(case, seed)
    except Exception as error:  # whatever a broken contender raises is a red check, told as such
        return Check(contender.name, case, "", float("inf"), allowed, f"{type(error).__name__}: {error}")
    if not pairs:
        return None
    errors = {name: relative_error(found, expected) for name, (found, expected) in pairs.items()}
    worst = max(errors, key=errors.__getitem__)
    return Check(contender.name, case, worst, errors[worst], allowed)


def require_parity(contenders: Iterable[Contender], cases: Iterable[Case], seed: int) -> list[Check]:
    """Check everybody on every case, scaled down; :class:`ParityError` names the tensors that are off."""
    small = list(dict.fromkeys(case.scaled_down() for case in cases))
    checks = []
    for contender in contenders:
        for case in small:
            if contender.refusal(case) is None and (found := check(contender, case, seed)) is not None:
                checks.append(found)
    failures = [found for found in checks if not found.passed]
    if failures:
        raise ParityError(failures)
    return checks
