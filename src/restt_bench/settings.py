"""How a benchmark is run."""

from __future__ import annotations

from dataclasses import dataclass

from restt._common.errors import check_int, check_positive


@dataclass(frozen=True)
class Settings:
    """Rounds, budgets and the seed.

    ``budget`` is the seconds each contender may use per case for its timed calls. In a sweep, whoever needed more
    than ``slow`` seconds for one step is left out of the larger sizes.
    """

    rounds: int = 41
    budget: float = 10.0
    slow: float = 5.0
    seed: int = 0
    quick: bool = False

    def __post_init__(self) -> None:
        check_int("rounds", self.rounds, minimum=1)
        check_positive("budget", self.budget)
        check_positive("slow", self.slow)
        check_int("seed", self.seed, minimum=0)


QUICK = Settings(rounds=5, budget=0.5, quick=True)
