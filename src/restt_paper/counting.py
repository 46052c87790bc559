"""Parameter counts as the paper's Table I has them, beside the true ones."""

from __future__ import annotations

from dataclasses import dataclass

from restt._common.errors import check_choice, check_int


@dataclass(frozen=True)
class PaperCount:
    """The paper's count, Algorithm 1's, and why they differ."""

    paper: int
    algorithm: int
    why: str

    def __str__(self) -> str:
        return f"{self.paper} in Table I, {self.algorithm} in Algorithm 1: {self.why}"


def paper_count(
    bond_dim: int, topology: str = "residual", *, sites: int = 196, feature_dim: int = 2, outputs: int = 10
) -> PaperCount:
    """Trainable numbers by the paper's Table I and by Algorithm 1.

    >>> from restt_paper.counting import paper_count
    >>> count = paper_count(10, "plain")
    >>> count.paper, count.algorithm
    (38840, 39020)
    >>> print(paper_count(100))
    3919400 in Table I, 3922020 in Algorithm 1: Table I gives the last core W(N,1) and the last entry W(N,2) no output \
leg (as if for O = 1 and width r) and leaves W(N,3) out
    """
    check_choice("topology", topology, ("residual", "plain"))
    r = check_int("bond_dim", bond_dim, minimum=1)
    n = check_int("sites", sites, minimum=2)
    i = check_int("feature_dim", feature_dim, minimum=1)
    o = check_int("outputs", outputs, minimum=1)
    chain = i * r + (n - 2) * i * r * r
    paper, algorithm = chain + i * r, chain + i * r * o
    if topology == "plain":
        return PaperCount(paper, algorithm, "Table I gives the last core W(N,1) no output leg")
    why = (
        "Table I gives the last core W(N,1) and the last entry W(N,2) no output leg (as if for O = 1 and width r) "
        "and leaves W(N,3) out"
    )
    return PaperCount(paper + (n - 1) * i * r, algorithm + (n - 2) * i * r + i * o + r * o, why)
