"""The paper's complexity claims (Sec. III-D) and what the arithmetic says."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Claim:
    """How time grows along one axis: the paper's exponent, and the one that holds.

    ``holds`` counts multiplications. A measured exponent below it means that fixed costs still weigh at these sizes.
    """

    axis: str
    paper: str
    paper_exponent: float | None
    holds: str
    holds_exponent: float


# The paper counts Σ_n I_n r³ (TT) and Σ_n (I_n r³ + I_n r) (ResTT); a sample needs I_n r² per site, as no product of
# two r×r matrices is ever taken.
CLAIMS = {
    "bond_dim": Claim("r", "Σ I r³ (TT), Σ (I r³ + I r) (ResTT)", 3.0, "I r² per sample and site", 2.0),
    "sites": Claim("N", "a sum over the N sites", 1.0, "linear in N", 1.0),
    "batch": Claim("B", "not stated", None, "linear in B", 1.0),
    "runs": Claim("S", "not stated", None, "linear in S", 1.0),
}

FULL_TENSOR = "O(Π I_n): the time of one more site grows by the factor I"
MEMORY = {
    "full tensor": "O(Π I_n)",
    "TT": "O(Σ I_n r²)",
    "ResTT": "O(Σ (I_n r² + I_n r))",
}
