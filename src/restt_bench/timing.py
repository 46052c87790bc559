"""Interleaved timing: calls take turns, so that other work on the machine slows all of them alike."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import ceil

import numpy as np
import torch

from restt._common.errors import check_int, check_positive

MIN_ROUNDS = 3
# Up to this many seconds a call, each turn starts with one untimed call that refills the caches.
SETTLE_BELOW = 1.0
# On a GPU the clock is read once for this many seconds of calls, since waiting for the device costs microseconds.
GPU_SECONDS = 5e-3


@dataclass(frozen=True)
class Summary:
    """Median and quartiles of one implementation's timed calls, in seconds."""

    median: float
    lower: float
    upper: float
    fastest: float
    rounds: int

    def as_milliseconds(self) -> dict[str, float | int]:
        """Convert to milliseconds and the number of rounds, for results files."""
        return {key: value if key == "rounds" else round(1e3 * value, 6) for key, value in asdict(self).items()}


def summarise(seconds: Sequence[float]) -> Summary:
    """Median and quartiles, interpolated.

    >>> summarise([3.0, 1.0, 2.0, 5.0, 4.0])
    Summary(median=3.0, lower=2.0, upper=4.0, fastest=1.0, rounds=5)
    """
    lower, median, upper = (float(value) for value in np.quantile(seconds, (0.25, 0.5, 0.75)))
    return Summary(median, lower, upper, min(seconds), len(seconds))


def planned_rounds(seconds: float, *, rounds: int, budget: float) -> int:
    """Rounds of a call that takes ``seconds``: all, or as many as its budget in seconds pays for.

    >>> planned_rounds(0.001, rounds=50, budget=5.0), planned_rounds(1.0, rounds=50, budget=5.0)
    (50, 5)
    >>> planned_rounds(60.0, rounds=50, budget=5.0)
    3
    """
    return max(min(MIN_ROUNDS, rounds), min(rounds, int(budget / max(seconds, 1e-9))))


def interleaved(planned: Mapping[str, int]) -> list[str]:
    """Order of the timed calls; a call with fewer rounds has them spread over the run.

    >>> interleaved({"quick": 4, "slow": 2})
    ['quick', 'quick', 'slow', 'quick', 'quick', 'slow']
    """
    total = max(planned.values(), default=0)
    order = []
    for turn in range(total):
        order += [name for name, own in planned.items() if (turn + 1) * own // total > turn * own // total]
    return order


def measure(
    calls: Mapping[str, Callable[[], object]],
    *,
    rounds: int,
    budget: float,
    synchronize: Callable[[], object] | None = None,
    at_least: float = 0.0,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Summary]:
    """Median and quartiles of each call, timed in turn after two untimed calls of each.

    Parameters
    ----------
    calls : mapping of str to callable
        Calls by name.
    rounds : int
        Rounds of quick calls.
    budget : float
        Seconds each may use for its timed calls; slow ones get fewer rounds, never under three.
    synchronize : callable, optional
        Waits until the device is done; called before the clock is read.
    at_least : float
        Seconds between two readings of the clock; quick calls are repeated to fill them, and their mean counts.

    Examples
    --------
    >>> measure({"sum": lambda: sum(range(100))}, rounds=3, budget=1.0)["sum"].rounds
    3
    """
    check_int("rounds", rounds, minimum=1)
    check_positive("budget", budget)

    def timed(call: Callable[[], object], repeats: int = 1) -> float:
        gc.disable()
        try:
            if synchronize is not None:
                synchronize()
            start = clock()
            for _ in range(repeats):
                call()
            if synchronize is not None:
                synchronize()
            return (clock() - start) / repeats
        finally:
            gc.enable()

    first = {}
    for name, call in calls.items():
        # The first call may compile or allocate; the second says how long a call takes. One is enough for a slow one.
        first[name] = timed(call)
        if first[name] < SETTLE_BELOW:
            first[name] = timed(call)
    repeats = {name: max(1, ceil(at_least / max(seconds, 1e-9))) for name, seconds in first.items()}
    planned = {
        name: planned_rounds(repeats[name] * seconds, rounds=rounds, budget=budget) for name, seconds in first.items()
    }
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for name in interleaved(planned):
        if first[name] < SETTLE_BELOW:
            calls[name]()
        seconds[name].append(timed(calls[name], repeats[name]))
    return {name: summarise(values) for name, values in seconds.items()}


def synchronizer(device: str) -> Callable[[], object] | None:
    """Waits for the device's queue; None where calls return when they are done."""
    return torch.cuda.synchronize if torch.device(device).type == "cuda" else None


def measure_on(
    device: str, calls: Mapping[str, Callable[[], object]], *, rounds: int, budget: float
) -> dict[str, Summary]:
    """:func:`measure` on a device: waits for its queue, and repeats quick calls between two readings of the clock."""
    wait = synchronizer(device)
    if wait is not None:
        # A first call may compile for seconds, which says nothing about how many rounds there is time for.
        for call in calls.values():
            call()
    at_least = 0.0 if wait is None else GPU_SECONDS
    return measure(calls, rounds=rounds, budget=budget, synchronize=wait, at_least=at_least)
