"""What the paper says in words, and whether the measurements bear it out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from restt_paper.tables import NOT_YET, Table


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper beside what was measured; ``holds`` is None where that is not there yet.

    >>> Claim("ResTT needs 20 epochs", "12 epochs", True).row()
    ('ResTT needs 20 epochs', '12 epochs', 'holds')
    >>> Claim("ResTT needs 20 epochs").row()
    ('ResTT needs 20 epochs', 'not yet', 'not yet')
    """

    text: str
    measured: str = NOT_YET
    holds: bool | None = None

    def row(self) -> tuple[str, str, str]:
        """Claim, measured, verdict."""
        return self.text, self.measured, {None: NOT_YET, True: "holds", False: "does not hold"}[self.holds]


RULE = "A claim holds only if it does in every comparison; a tie is enough for it not to hold."


def claims_table(title: str, claims: Iterable[Claim], notes: tuple[str, ...] = ()) -> Table:
    """One row per claim."""
    return Table(title, ("the paper's claim", "measured", "verdict"), tuple(claim.row() for claim in claims), notes)
