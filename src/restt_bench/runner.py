"""The benchmark, from names of suites and studies to tables and results files."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from restt._common.devices import read_device
from restt._common.errors import check_choice, check_int
from restt._common.files import write_json_atomic
from restt._common.provenance import describe_device, provenance
from restt_bench.case import QUICK, Settings
from restt_bench.implementations import Implementation, field
from restt_bench.parity import require_parity
from restt_bench.race import Row, race
from restt_bench.report import show
from restt_bench.studies import STUDIES, study_named
from restt_bench.suites import SCALING, SUITES, Suite, suite_of

if TYPE_CHECKING:
    from rich.console import Console

RESULTS = Path("results") / "bench"
# Where what is no speed goes.
OWN_RESULTS = {"tables": Path("results") / "tabular"}
FILE_WIDTH = 120  # columns of a table where there is no terminal to ask
GROUPS = {"scaling": SCALING, "all": tuple(SUITES)}
NAMES = (*SUITES, *STUDIES, *GROUPS)


def expand(names: Sequence[str]) -> list[str]:
    """Names with the groups ``scaling`` and ``all`` spelled out, each suite or study once.

    >>> expand(["scaling", "main", "scaling-r"])
    ['scaling-r', 'scaling-n', 'scaling-b', 'main']
    """
    expanded: list[str] = []
    for name in names:
        expanded += GROUPS.get(check_choice("name", name, NAMES), (name,))
    return list(dict.fromkeys(expanded))


def run(
    names: Sequence[str] = ("main",),
    *,
    quick: bool = False,
    output: str | PathLike[str] | None = None,
    device: str = "cpu",
    threads: int | None = None,
    seed: int = 0,
    rounds: int | None = None,
    budget: float | None = None,
    workers: int = 1,
    command: str | None = None,
    console: Console | None = None,
) -> list[dict[str, Any]]:
    """Run suites and studies, print their tables, save their results.

    Before a suite is timed, every implementation is compared with the reference on every configuration of the suite,
    scaled down; one tensor off raises :class:`restt_bench.ParityError` and nothing is timed, printed or saved.

    Parameters
    ----------
    names : sequence of str
        Suites, which time steps and inference: main, inference, scaling-r, scaling-n, scaling-b. Studies: those of
        :data:`restt_bench.studies.STUDIES`. ``scaling`` and ``all`` are groups.
    quick : bool
        Tiny sizes and few rounds, to see that everything works. The figures mean nothing.
    output : path, optional
        Folder for ``<name>-<device>.json``; by default ``results/bench``, for the league of tables
        ``results/tabular``. A quick run writes nothing unless a folder is given.
    device : str
        Torch device of everything timed.
    threads : int, optional
        Torch's CPU threads during the run; unchanged by default. Recorded either way.
    seed : int
        Of weights and data.
    rounds, budget : optional
        Rounds of quick implementations, and the seconds each may use per case.
    workers : int
        Processes that compile GPU kernels, or fit models of the league, side by side.
    command : str, optional
        What to record as the command that gives the results again.
    console : rich.console.Console, optional
        Where tables go.

    Returns
    -------
    list of dict
        One per suite or study, as saved.

    Examples
    --------
    >>> from rich.console import Console
    >>> import io
    >>> quiet = Console(file=io.StringIO())
    >>> [result] = run(["inference"], quick=True, rounds=2, budget=0.01, console=quiet)
    >>> result["suite"], sorted(result["provenance"])[:3]
    ('inference', ['command', 'commit', 'date'])
    """
    device = str(read_device(device, work=0.0))
    settings = QUICK if quick else Settings()
    changes = {"rounds": rounds, "budget": budget, "seed": seed, "workers": workers}
    settings = replace(settings, **{key: value for key, value in changes.items() if value is not None})  # type: ignore[arg-type]
    given = None if output is None else Path(output)
    if console is None:
        from rich.console import Console

        console = Console()
        if not console.is_terminal:
            console = Console(width=FILE_WIDTH)
    before = torch.get_num_threads()
    torch.set_num_threads(before if threads is None else check_int("threads", threads, minimum=1))
    results = []
    try:
        for name in expand(names):
            origin = provenance(device, seed=seed, command=command or f"restt bench {name}")
            start = time.perf_counter()
            result: dict[str, Any] = {"suite": name, "device": device, "settings": asdict(settings)}
            if name in STUDIES:
                result |= study_named(name)(device, settings, console)
            else:
                suite = suite_of(name, device, quick=quick)
                result |= _timed_suite(suite, device, settings, console)
            result["wall_seconds"] = round(time.perf_counter() - start, 2)
            result["provenance"] = origin
            show(result, console)
            folder = given or (None if quick else OWN_RESULTS.get(name, RESULTS))
            if folder is not None:
                path = write_json_atomic(folder / f"{name}-{_machine(device)}.json", result)
                console.print(f"saved {path}", markup=False)
            results.append(result)
    finally:
        torch.set_num_threads(before)
    return results


def _timed_suite(suite: Suite, device: str, settings: Settings, console: Console) -> dict[str, Any]:
    timed = field(device, plain=suite.is_sweep)
    if suite.only_ours:
        timed = [implementation for implementation in timed if implementation.role == "ours"]
    checks = require_parity(timed, suite.cases, settings.seed)
    rows = _raced(suite, timed, settings, console)
    parity = [check.as_dict() for check in checks]
    return {"title": suite.title, "axis": suite.axis, "parity": parity, "rows": rows}


def _raced(suite: Suite, timed: list[Implementation], settings: Settings, console: Console) -> list[Row]:
    rows: list[Row] = []
    left_out: dict[str, str] = {}
    for case in suite.cases:
        console.print(f"{suite.name}: timing {case}", style="dim")
        rows += race(case, timed, settings, left_out, suite.modes)
        for row in rows[-len(timed) :]:
            if suite.is_sweep and "step" in row and row["step"]["median"] > 1e3 * settings.slow:
                seconds = row["step"]["median"] / 1e3
                left_out[row["implementation"]] = f"left out: {seconds:.1f} s a step at the size before"
    return rows


def _machine(device: str) -> str:
    """The device in a file's name: a GPU by its model, since they differ more than processors do.

    >>> _machine("cpu")
    'cpu'
    """
    if not device.startswith("cuda"):
        return device
    return describe_device(device).removeprefix("NVIDIA ").lower().replace(" ", "-")
