"""What a contender offers the benchmark."""

from __future__ import annotations

from typing import ClassVar, Literal

from torch import Tensor

from restt_bench.case import Case
from restt_bench.work import Work

Role = Literal["ours", "peer", "limit"]


class Contender:
    """One implementation in the race. Subclasses fill in the class attributes and :meth:`build`."""

    role: ClassVar[Role]
    name: str  # short and stable: the key in results files
    label: str  # for tables and plots

    def refusal(self, case: Case) -> str | None:
        """Why this contender cannot run the case, or None."""
        return None

    def extra_bytes(self, case: Case) -> int:
        """Roughly how much memory a training step takes beyond the states, so that none is started that cannot end."""
        return 0

    def build(self, case: Case, seed: int) -> Work:
        """Everything a step needs, made before the clock starts."""
        raise NotImplementedError

    def found_and_expected(self, case: Case, seed: int) -> dict[str, tuple[Tensor, Tensor]]:
        """Output and gradients beside the reference's in float64, by name; empty where there is nothing to compare."""
        return {}
