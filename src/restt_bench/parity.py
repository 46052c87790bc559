"""Parity check: every implementation is compared with the reference before anything is timed.

One check for every device: the output, the features' gradient and every parameter's, against the reference in float64
on the CPU, by :func:`relative_error` and the bounds of ``ALLOWED``.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from restt import Topology, chain
from restt.module import ResTT
from restt_bench.case import Case
from restt_bench.implementation import Implementation, mse

# ‖computed − exact‖ / ‖exact‖ allowed for each tensor: a few times what rounding of the operands leaves.
ALLOWED = {"float64": 1e-10, "float32": 1e-5, "tf32": 1e-2, "bf16": 6e-2}
# What a product of tf32 operands may lose of its size. Tensor cores cut the last bits off instead of rounding them, so
# each operand comes out too small, by ½ · 2⁻¹⁰ · ln 2 on average, and a product by 6.8e-4: measured were 6.4e-4 a site
# over 7 plain sites, 6.8e-4 over 40 (results/bench/check-h200.json). Errors of one sign add up wherever a state
# reaches the next site through a product alone. Operands rounded to bf16 err both ways and stay within ALLOWED.
CUT_OFF_PER_PRODUCT = {"tf32": 2.0**-10}


@dataclass(frozen=True)
class Check:
    """The worst tensor of one implementation on one (scaled-down) case."""

    implementation: str
    case: Case
    tensor: str
    error: float  # infinite where shapes differ or values are not finite
    allowed: float
    raised: str | None = None

    @property
    def passed(self) -> bool:
        """Whether the error is allowed."""
        return self.raised is None and self.error <= self.allowed

    def __str__(self) -> str:
        if self.raised is not None:
            return f"{self.implementation} raised {self.raised} for {self.case}"
        verdict = "agrees with" if self.passed else "differs from"
        size = f"{self.error:.1e} of its size, allowed {self.allowed:.0e}"
        return f"{self.implementation} {verdict} the reference; worst in {self.tensor!r}: {size}; {self.case}"


class ParityError(RuntimeError):
    """An implementation computes something else, so its speed means nothing. ``failures`` has the failed checks."""

    def __init__(self, failures: Sequence[Check]) -> None:
        self.failures = tuple(failures)
        lines = "\n".join(f"  {check}" for check in self.failures)
        super().__init__(f"parity is red, so nothing is timed and no speed-up is reported:\n{lines}")


def relative_error(computed: Tensor, expected: Tensor) -> float:
    """‖computed − expected‖ / ‖expected‖; infinite for other shapes or non-finite values.

    >>> relative_error(torch.tensor([3.0, 3.0]), torch.tensor([3.0, 4.0]))
    0.2
    >>> relative_error(torch.tensor([float("nan")]), torch.tensor([1.0]))
    inf
    """
    if computed.shape != expected.shape:
        return float("inf")
    computed = computed.detach().to(expected)
    if not (computed.isfinite().all() and expected.isfinite().all()):
        return float("inf")
    difference, size = float((computed - expected).norm()), float(expected.norm())
    return difference / size if size else difference


def allowed_of(precision: str, topology: Topology) -> float:
    """Bound for a precision of products; it grows with the sites that only multiply, not with those that add.

    >>> allowed_of("tf32", Topology.residual(10_000)), allowed_of("tf32", Topology.plain(40))
    (0.01, 0.0380859375)
    """
    multiplying = sum(chain and skip != "full" for chain, skip in zip(topology.chains, topology.skips, strict=True))
    return max(ALLOWED[precision], multiplying * CUT_OFF_PER_PRODUCT.get(precision, 0.0))


def check(implementation: Implementation, case: Case, seed: int) -> Check | None:
    """The worst tensor of ``implementation`` on this very case; None where it has nothing to compare."""
    if implementation.role != "ours":
        # Whether a baseline is right shows best without the rounding it is then timed with.
        case = replace(case, precision="float32")
    precision = case.dtype if case.dtype == "float64" or not case.on_gpu else case.precision
    allowed = allowed_of(precision, Topology.residual(case.sites))
    try:
        with case.matmul_precision():
            pairs = implementation.compared(case, seed)
    except Exception as error:  # whatever a broken implementation raises is a failed check
        return Check(implementation.name, case, "", float("inf"), allowed, f"{type(error).__name__}: {error}")
    if not pairs:
        return None
    errors = {name: relative_error(computed, expected) for name, (computed, expected) in pairs.items()}
    worst = max(errors, key=errors.__getitem__)
    return Check(implementation.name, case, worst, errors[worst], allowed)


def require_parity(implementations: Iterable[Implementation], cases: Iterable[Case], seed: int) -> list[Check]:
    """Check all implementations on every case, scaled down; :class:`ParityError` names the tensors that differ."""
    small = list(dict.fromkeys(case.scaled_down() for case in cases))
    checks = [
        result
        for implementation in implementations
        for case in small
        if implementation.refusal(case) is None and (result := check(implementation, case, seed)) is not None
    ]
    failures = [result for result in checks if not result.passed]
    if failures:
        raise ParityError(failures)
    return checks


def cotangent(case: Case, seed: int) -> Tensor:  # (B, O) or (S, B, O), float64
    """The gradient that arrives from above, the same for all who are compared."""
    leading = () if case.runs is None else (case.runs,)
    generator = torch.Generator().manual_seed(seed + 1)
    return torch.randn(*leading, case.batch, case.outputs, generator=generator, dtype=torch.float64)


def output_and_gradients(
    model: Callable[[Tensor], Tensor],
    parameters: Mapping[str, Tensor],
    x: Tensor,  # (B, N, I)
    upstream: Tensor,  # (B, O) or (S, B, O)
    scope: Callable[[], AbstractContextManager[None]] = nullcontext,
    features: bool = True,
) -> dict[str, Tensor]:
    """The output, the gradient of every parameter and, unless ``features`` is False, that of the features."""
    x = x.detach().clone().requires_grad_(features)
    for parameter in parameters.values():
        parameter.grad = None
    with scope():
        output = model(x)
    output.backward(upstream.to(output))
    wanted = {"x": x, **parameters} if features else parameters
    gradients = {
        name: torch.zeros_like(tensor) if tensor.grad is None else tensor.grad.detach().clone()
        for name, tensor in wanted.items()
    }
    return {"output": output.detach(), **gradients}


def reference_gradients(module: ResTT, case: Case, seed: int) -> dict[str, Tensor]:
    """Output and gradients by the reference in float64 on the CPU, for the weights of ``module``."""
    exact = copy.deepcopy(module).to("cpu", torch.float64)
    x = case.data(seed)[0].to("cpu", torch.float64)
    upstream = cotangent(case, seed)
    return output_and_gradients(exact, dict(exact.named_parameters()), x, upstream, lambda: chain.backend("reference"))


def averaged_gradients(
    module: nn.Module, averages: Mapping[str, Tensor], step: Callable[[], None], case: Case, seed: int
) -> dict[str, tuple[Tensor, Tensor]]:
    """Adam's averages of the gradient after one more step, beside the reference's: a stale recording would show."""
    exact = copy.deepcopy(module).to("cpu", torch.float64)
    exact.zero_grad(set_to_none=True)
    before = {name: average.detach().to("cpu", torch.float64, copy=True) for name, average in averages.items()}
    step()
    x, target = (tensor.to("cpu", torch.float64) for tensor in case.data(seed))
    with chain.backend("reference"):
        mse(exact, x, target).backward()
    pairs = {}
    for name, parameter in exact.named_parameters():
        assert parameter.grad is not None
        pairs[name] = averages[name].clone(), 0.9 * before[name] + 0.1 * parameter.grad
    return pairs
