"""The benchmark, from names of suites and studies to tables and results files."""

from __future__ import annotations

import importlib
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
from restt_bench.case import QUICK, Case, Settings
from restt_bench.parity import require_parity
from restt_bench.suites import SUITES, SWEEPS, Row, Suite, make_suite, time_case

if TYPE_CHECKING:
    from rich.console import Console

# Studies: functions of device, settings and console that print as they go and return the content of a results file,
# its ``title`` included. They are imported when asked for.
STUDIES = {
    "check": "kernel_checks:check_kernels",
    "tables": "league:league",
    "explain": "explanations:explain_modules",
    "explain-trees": "explanations:explain_trees",
}
GROUPS = {"scaling": tuple(SWEEPS), "all": ("main", *SWEEPS)}
NAMES = (*SUITES, *STUDIES, *GROUPS)
RESULTS = Path("results")
FOLDERS = {"tables": RESULTS / "tabular"}  # of studies whose results are no speeds
FILE_WIDTH = 120  # columns of a table where there is no terminal to ask


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
        Suites, studies and groups of ``NAMES``.
    quick : bool
        Tiny sizes and few rounds, to see that everything works. The figures mean nothing.
    output : path, optional
        Folder for ``<name>-<device>.json``; by default ``results/bench``, for the league of tables
        ``results/tabular``. A quick run writes nothing unless a folder is given.
    device, threads : optional
        Torch device of everything timed, and torch's CPU threads during the run.
    seed, rounds, budget, workers : optional
        As in :class:`restt_bench.case.Settings`.
    command : str, optional
        Recorded as the command that gives the results again.
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
    >>> [result] = run(["main"], quick=True, rounds=2, budget=0.01, console=quiet)
    >>> result["suite"], sorted(result["provenance"])[:3]
    ('main', ['command', 'commit', 'date'])
    """
    device = str(read_device(device, work=0.0))
    changes = {"rounds": rounds, "budget": budget, "seed": seed, "workers": workers}
    given = {key: value for key, value in changes.items() if value is not None}
    settings = replace(QUICK if quick else Settings(), **given)  # type: ignore[arg-type]
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
                module, _, function = STUDIES[name].partition(":")
                study = getattr(importlib.import_module(f"restt_bench.{module}"), function)
                result |= study(device, settings, console)
            else:
                result |= _timed(make_suite(name, device, quick=quick), settings, console)
            result["wall_seconds"] = round(time.perf_counter() - start, 2)
            result["provenance"] = origin
            _show(result, console)
            folder = output or (None if quick else FOLDERS.get(name, RESULTS / "bench"))
            if folder is not None:
                path = write_json_atomic(Path(folder) / f"{name}-{_machine(device)}.json", result)
                console.print(f"saved {path}", markup=False)
            results.append(result)
    finally:
        torch.set_num_threads(before)
    return results


def _timed(suite: Suite, settings: Settings, console: Console) -> dict[str, Any]:
    checks = require_parity(suite.implementations, suite.cases, settings.seed)
    rows: list[Row] = []
    left_out: dict[str, str] = {}
    for case in suite.cases:
        console.print(f"{suite.name}: timing {case}", style="dim")
        new = time_case(case, suite.implementations, settings, left_out)
        rows += new
        for row in new if suite.is_sweep else ():
            seconds = row["step"]["median"] / 1e3 if "step" in row else 0.0
            if seconds > settings.slow:
                left_out[row["implementation"]] = f"left out: {seconds:.1f} s a step at the size before"
    return {"title": suite.title, "axis": suite.axis, "parity": [asdict(check) for check in checks], "rows": rows}


def _machine(device: str) -> str:
    """The device in a file's name: a GPU by its model, since they differ more than processors do.

    >>> _machine("cpu")
    'cpu'
    """
    if not device.startswith("cuda"):
        return device
    return describe_device(device).removeprefix("NVIDIA ").lower().replace(" ", "-")


def _show(result: dict[str, Any], console: Console) -> None:
    """Print the title and, of a suite, a table per case; a study has printed its results already."""
    where = result["provenance"]
    console.print(f"\n[bold]{result['title']}[/bold]  ({where['device']}, {where['threads']} threads)")
    if "parity" not in result:
        return
    console.print(f"parity: {len(result['parity'])} checks against the reference, all green")
    for case in dict.fromkeys(Case(**row["case"]) for row in result["rows"]):
        _show_case(case, [row for row in result["rows"] if row["case"] == asdict(case)], console)


def _show_case(case: Case, rows: list[Row], console: Console) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table("", title=str(case), title_justify="left", title_style="")
    for column in ("step, ms", "quartiles", "inference, ms", "rounds", "× limit", "restt's speed-up"):
        table.add_column(column, justify="right")
    medians = {row["implementation"]: row["step"]["median"] for row in rows if "step" in row}
    own = medians.get("auto-graph" if case.on_gpu else "auto")  # what a user gets
    limit = medians.get("limit") or medians.get("limit-graph")
    for row in rows:
        if "skipped" in row:
            continue
        step = row["step"]
        quartiles = f"{_ms(step['lower'])}–{_ms(step['upper'])}"
        times_limit = f"{step['median'] / limit:.2f}" if limit else ""
        speedup = f"{step['median'] / own:.1f}×" if own and row["role"] == "baseline" else ""
        cells = (_ms(step["median"]), quartiles, _ms(row["infer"]["median"]), str(step["rounds"]), times_limit, speedup)
        table.add_row(row["label"], *cells)
    console.print(table)
    for row in rows:
        if "skipped" in row:
            console.print(Text(f"{row['label']}: {row['skipped']}", style="dim"))


def _ms(milliseconds: float) -> str:
    return f"{milliseconds:.3f}" if milliseconds < 10 else f"{milliseconds:.1f}"
