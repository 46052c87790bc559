"""What keeps a training from learning too much: an L2 penalty graded by role, and site dropout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from restt._common.errors import check_choice, check_positive
from restt._common.seeds import uniform
from restt.topology import Topology
from restt.train.runs import PerRun, as_list, check_each, per_run

# W(1) is site 1's linear entry: y(1) = x(1) W(1). A bias (order 0) is never penalised.
GRADE_OF_ROLE = {
    "first": "linear",
    "chain": "chain",
    "linear": "linear",
    "last_chain": "head",
    "last_linear": "head",
    "last_skip": "head",
}


TOWARDS = ("zero", "start")


@dataclass(frozen=True)
class Penalty:
    """An L2 penalty graded by role, so that high orders have to earn their place.

    Adds Σ weight · ‖W‖² to each run's mean loss: ``chain`` for the cores W(n,1), which carry the interactions;
    ``linear`` for the entries W(n,2) and W(1); ``head`` for the last site's tensors.

    ``towards="start"`` penalises the distance from the weights that the training begins with, Σ weight · ‖W - W₀‖²,
    for a module that knows something already.

    Each may be one number for all runs or a sequence, one per run. Unlike weight decay it is part of the gradient that
    Adam sees, whichever optimizer is used, and it never touches a bias.

    >>> Penalty(chain=1e-2, linear=1e-3)
    Penalty(chain=0.01, linear=0.001, head=0.0, towards='zero')
    """

    chain: PerRun = 0.0
    linear: PerRun = 0.0
    head: PerRun = 0.0
    towards: str = "zero"

    def __post_init__(self) -> None:
        check_choice("penalty.towards", self.towards, TOWARDS)
        for name in ("chain", "linear", "head"):
            label = f"penalty.{name}"
            check_each(label, getattr(self, name), partial(check_positive, label, allow_zero=True))

    def to_dict(self) -> dict[str, Any]:
        """Plain values; ``towards`` only where it is not zero, which is all that older checkpoints know."""
        plain = {name: value if as_list(value) is None else as_list(value) for name, value in vars(self).items()}
        return {name: value for name, value in plain.items() if name != "towards" or value != "zero"}


def penalty_slopes(
    penalty: Penalty,
    weights: dict[str, Tensor],  # (S, …) each
    runs: Sequence[int],  # which of ``total`` runs the stacked weights hold
    total: int,
) -> dict[str, Tensor]:  # (S, 1, …) each
    """Twice the penalty's weight for each penalised tensor: what multiplies W, or W - W₀, in the gradient."""
    if not GRADE_OF_ROLE.keys() & weights.keys():
        raise ValueError(f"penalty is graded by the roles of a restt.ResTT, got tensors {sorted(weights)}")
    slopes = {}
    for name, tensor in weights.items():
        grade = GRADE_OF_ROLE.get(name)
        if grade is None:
            continue
        values = per_run(f"penalty.{grade}", getattr(penalty, grade), total)
        # Looked at on the host: a look at a device waits for it.
        chosen = torch.tensor([2.0 * values[run] for run in runs], dtype=tensor.dtype)
        if bool(chosen.any()):
            slopes[name] = chosen.to(tensor.device).view(-1, *[1] * (tensor.dim() - 1))
    return slopes


def droppable_sites(topology: Topology) -> tuple[bool, ...]:  # N
    """Sites that may vanish without breaking the chain: those with a full skip. At site N, output is the same as full.

    >>> droppable_sites(Topology.residual(4).without_skip(3))
    (False, True, False, True)
    """
    inner = tuple(skip == "full" for skip in topology.skips[:-1])
    return (False, *inner, topology.ends_with_skip)[: topology.sites]


class SiteDropout:
    """Sets x(n) to 0 with the run's probability p, which makes the site an identity step; scales the kept by 1/(1-p).

    The output is multilinear in the site vectors and sites drop independently, so its expectation is the output without
    dropout, exactly.
    """

    def __init__(self, topology: Topology, probabilities: Sequence[float], like: Tensor) -> None:
        """``probabilities`` holds one per run; dtype and device are those of ``like``."""
        p = torch.tensor(probabilities, dtype=torch.float64)[:, None]  # (S, 1)
        p = p * torch.tensor(droppable_sites(topology), dtype=torch.float64)  # (S, N)
        self.p = p[:, None].to(like.device, torch.float32)  # (S, 1, N)
        self.scale = (1 / (1 - p))[:, None].to(like)  # (S, 1, N)

    def __call__(
        self,
        x: Tensor,  # (S or 1, B, N, I)
        keys: Tensor,  # (S,)
        offset: int,
    ) -> Tensor:  # (S, B, N, I)
        """``x`` with sites dropped; ``offset`` is the position in the runs' streams."""
        kept = uniform(keys, tuple(x.shape[1:3]), offset) >= self.p
        return x * (kept * self.scale).unsqueeze(-1)
