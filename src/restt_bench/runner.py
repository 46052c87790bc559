"""The benchmark, from suite names to tables, results files and pictures."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from restt._common.errors import check_int
from restt._common.files import write_json_atomic
from restt._common.provenance import provenance
from restt_bench.contenders.base import Contender
from restt_bench.contenders.registry import CHOSEN, full_tensor_racers, racers
from restt_bench.import_time import measure_import
from restt_bench.parity import require_parity
from restt_bench.peak import peak_memory
from restt_bench.phases import breakdown
from restt_bench.plots import plot_suite
from restt_bench.race import Row, race
from restt_bench.report import show
from restt_bench.settings import QUICK, Settings
from restt_bench.suites import IMPORT_SUITE, SUITES, Suite, expand
from restt_bench.verdicts import parameter_growth, suite_exponents, suite_targets

if TYPE_CHECKING:
    from rich.console import Console

RESULTS = Path("results") / "bench"
FILE_WIDTH = 120  # columns of a table where there is no terminal to ask


def run(
    suites: Sequence[str] = ("main",),
    *,
    quick: bool = False,
    output: str | PathLike[str] | None = None,
    device: str = "cpu",
    threads: int | None = None,
    seed: int = 0,
    rounds: int | None = None,
    budget: float | None = None,
    memory: bool = False,
    profile: bool = False,
    plots: bool = True,
    command: str | None = None,
    console: Console | None = None,
) -> list[dict[str, Any]]:
    """Run suites, print their tables, save their results and pictures.

    Before a suite is timed, every contender is compared with the reference on every configuration of the suite,
    scaled down; one tensor off raises :class:`restt_bench.ParityError` and nothing is timed, printed or saved.

    Parameters
    ----------
    suites : sequence of str
        Of main, small, scaling-r, scaling-n, scaling-b, scaling-s, full-tensor, import; scaling and all are groups.
    quick : bool
        Tiny sizes and few rounds, to see that everything works. The figures mean nothing.
    output : path, optional
        Folder for ``<suite>-<device>.json`` and ``.png``; ``results/bench`` by default. A quick run writes nothing
        unless a folder is given.
    device : str
        Torch device of all contenders.
    threads : int, optional
        Torch's CPU threads during the run; unchanged by default. Recorded either way.
    seed : int
        Of weights and data.
    rounds, budget : optional
        Rounds of quick contenders, and the seconds each contender may use per case.
    memory : bool
        Also measure each contender's peak memory, in processes of their own.
    profile : bool
        Also break our step down into forward, backward and optimizer, and into operations.
    plots : bool
        Save pictures of suites with a varying axis.
    command : str, optional
        What to record as the command that gives the results again.
    console : rich.console.Console, optional
        Where tables go.

    Returns
    -------
    list of dict
        One per suite, as saved.

    Examples
    --------
    >>> from rich.console import Console
    >>> import io
    >>> quiet = Console(file=io.StringIO())
    >>> [result] = run(["small"], quick=True, rounds=2, budget=0.01, console=quiet)
    >>> result["suite"], sorted(result["provenance"])[:3]
    ('small', ['command', 'commit', 'date'])
    """
    settings = QUICK if quick else Settings()
    chosen = {"rounds": rounds, "budget": budget, "seed": seed}
    settings = replace(settings, **{key: value for key, value in chosen.items() if value is not None})  # type: ignore[arg-type]
    folder = Path(output) if output is not None else (None if quick else RESULTS)
    if console is None:
        from rich.console import Console

        console = Console()
        if not console.is_terminal:
            console = Console(width=FILE_WIDTH)
    before = torch.get_num_threads()
    torch.set_num_threads(before if threads is None else check_int("threads", threads, minimum=1))
    results = []
    try:
        for name in expand(list(suites)):
            origin = provenance(device, seed=seed, command=command or f"restt bench {name}")
            start = time.perf_counter()
            result = _head(name, device, settings)
            if name == IMPORT_SUITE:
                result |= {"title": "What importing costs", **measure_import(settings.rounds if quick else 11)}
            else:
                result |= _timed_suite(
                    _on(SUITES[name](quick), device), settings, memory=memory, profile=profile, console=console
                )
            result["wall_seconds"] = round(time.perf_counter() - start, 2)
            result["provenance"] = origin
            show(result, console)
            if folder is not None:
                _save(result, folder, device, plots=plots, console=console)
            results.append(result)
    finally:
        torch.set_num_threads(before)
    return results


def _head(name: str, device: str, settings: Settings) -> dict[str, Any]:
    return {"suite": name, "device": device, "settings": asdict(settings)}


def _on(suite: Suite, device: str) -> Suite:
    return replace(suite, cases=tuple(replace(case, device=device) for case in suite.cases))


def _timed_suite(suite: Suite, settings: Settings, *, memory: bool, profile: bool, console: Console) -> dict[str, Any]:
    contenders = full_tensor_racers() if suite.full_tensor else racers(plain=suite.is_sweep)
    checks = require_parity(contenders, suite.cases, settings.seed)
    rows = _raced(suite, contenders, settings, console)
    result: dict[str, Any] = {
        "title": suite.title,
        "axis": suite.axis,
        "parity": [check.as_dict() for check in checks],
        "rows": rows,
        "exponents": suite_exponents(suite, rows),
        "parameters": parameter_growth(suite),
        "targets": [target.as_dict() for target in suite_targets(suite, rows)],
    }
    if memory:
        result["memory"] = _peaks(suite, rows, settings)
    if profile:
        ours = next(contender for contender in contenders if contender.name == CHOSEN)
        result["profile"] = [breakdown(ours, case, settings) for case in suite.cases]
    return result


def _raced(suite: Suite, contenders: list[Contender], settings: Settings, console: Console) -> list[Row]:
    rows: list[Row] = []
    left_out: dict[str, str] = {}
    for case in suite.cases:
        console.print(f"[dim]{suite.name}: timing {case}[/dim]")
        rows += race(case, contenders, settings, left_out)
        for row in rows[-len(contenders) :]:
            if suite.is_sweep and "step" in row and row["step"]["median"] > 1e3 * settings.slow:
                seconds = row["step"]["median"] / 1e3
                left_out[row["contender"]] = f"left out: {seconds:.1f} s a step at the size before"
    return rows


def _peaks(suite: Suite, rows: list[Row], settings: Settings) -> list[dict[str, Any]]:
    found = []
    for case in suite.cases[-1:] if suite.is_sweep else suite.cases:  # of a sweep, its largest size
        for row in rows:
            if row["case"] == case.as_dict() and "step" in row and row["role"] != "limit":
                entry = {"contender": row["contender"], "case": row["case"]}
                measured = peak_memory(row["contender"], case, seed=settings.seed, threads=torch.get_num_threads())
                found.append(entry | measured)
    return found


def _save(result: dict[str, Any], folder: Path, device: str, *, plots: bool, console: Console) -> None:
    stem = f"{result['suite']}-{torch.device(device).type}"
    console.print(f"saved {write_json_atomic(folder / f'{stem}.json', result)}")
    if plots and (picture := plot_suite(result, folder / f"{stem}.png")) is not None:
        console.print(f"saved {picture}")
