"""The command line: parses, calls public functions, prints."""

from __future__ import annotations

import errno
import os
import sys
import traceback
import warnings
from collections.abc import Callable
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import restt
from restt_app.cli_tables import check, compare, explain, fit, info, predict, serve
from restt_paper import EXPERIMENTS

if TYPE_CHECKING:
    from rich.progress import TaskID

app = typer.Typer(
    help="Residual tensor trains: one model for every feature interaction, from order 1 to N.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode="markdown",
)
data_app = typer.Typer(help="Data sets: what there is, and getting it.", no_args_is_help=True)
app.add_typer(data_app, name="data")


STOPPED = 130  # the exit code of Ctrl-C, as shells have it


def main() -> None:
    """Entry point: what went wrong is one line on stderr, not a traceback.

    Exit codes: 0 done, 1 the data or the run, 2 the command itself, 3 `check` found differences, 130 stopped by Ctrl-C.
    """
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without ± or σ shows "?"
    words = [word for word in sys.argv[1:] if word != "--debug"]
    debug = len(words) < len(sys.argv) - 1
    with warnings.catch_warnings():
        if not debug:
            warnings.showwarning = _note_once()
        try:
            code = app(words, prog_name="restt", standalone_mode=False) or 0
            sys.stdout.flush()
        except (typer.Abort, KeyboardInterrupt):
            code = STOPPED
        except BrokenPipeError:
            code = 1
        except Exception as error:
            if debug:
                traceback.print_exc()
            code = _report(error)
    if code == STOPPED:  # which newer versions of the parser return
        print("restt: stopped", file=sys.stderr)
    if code:
        _discard_stdout()
    sys.exit(code)


def _report(error: Exception) -> int:
    """Print an error in a line and return the exit code; what no user can have caused is raised again."""
    if hasattr(error, "show") and hasattr(error, "exit_code"):  # the parser's, of a wrong command
        error.show()
        return int(error.exit_code)
    if isinstance(error, OSError) and error.strerror:
        where = f": {error.filename}" if error.filename else ""
        advice = "; free some, or write elsewhere" if error.errno == errno.ENOSPC else ""
        text = f"{error.strerror}{where}{advice}"
    elif isinstance(error, MemoryError):
        text = f"not enough memory: {str(error) or 'try fewer rows or columns'}"
    elif isinstance(error, (ValueError, TypeError, OSError, ImportError, RuntimeError)):
        text = " ".join(str(error).split())
    else:
        raise error
    print(f"restt: {text}", file=sys.stderr)
    return 1


def _note_once() -> Callable[..., None]:
    """Show warnings as notes, each text once: predictions and their intervals warn of the same rows."""
    shown: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        text = " ".join(str(message).split())
        if text not in shown:
            print(f"restt: note: {text}", file=sys.stderr)
        shown.add(text)

    return show


def _discard_stdout() -> None:
    """Drop what a closed pipe or a full disk has not taken: Python would try it again on the way out."""
    try:
        sys.stdout.flush()
    except OSError:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"restt {restt.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and leave.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show where in the program an error arose.")] = False,
) -> None:
    pass


for command in (fit, predict, explain, compare, check, serve, info):
    app.command()(command)


@app.command()
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for all that is made.")] = Path("demo-output"),
    seed: Annotated[int, typer.Option(min=0, help="Of splits, fit and resamples.")] = 0,
) -> None:
    """The tour: fit a bundled table, compare with baselines, predict, explain, and write the page."""
    from restt_app.demo import run

    run(output, seed=seed)


@app.command(name="warm-up")
def warm_up(device: Annotated[str, typer.Option(help="A torch device, or auto.")] = "auto") -> None:
    """Compile what a first fit would wait for, once for this machine."""
    for part, seconds in restt.warm_up(device).items():
        print(f"{part}: {seconds:.1f} s")


@app.command()
def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Suites: main, scaling-r, scaling-n, scaling-b, loops. Studies: check, "
            "tables, explain, explain-trees. Groups: scaling, all."
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Tiny sizes: does everything work? Saves nothing.")] = False,
    output: Annotated[Path | None, typer.Option(help="Folder for the results; default results/bench.")] = None,
    device: Annotated[str, typer.Option(help="A torch device.")] = "cpu",
    threads: Annotated[int | None, typer.Option(min=1, help="torch's CPU threads.")] = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    rounds: Annotated[int | None, typer.Option(min=1, help="Timed rounds of quick implementations.")] = None,
    budget: Annotated[
        float | None, typer.Option(min=0.0, help="Seconds of timed calls per implementation and case.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes of check and tables.")] = 1,
) -> None:
    """Time training steps against baselines and the machine's limit; refuses to compare while parity is red."""
    from restt_bench import run

    chosen = names or (["all"] if quick else ["main"])
    flags = ["--quick"] if quick else []
    values = {"device": device, "threads": threads, "seed": seed, "rounds": rounds, "budget": budget}
    # Without the output folder: a results file holds no path of the machine it was made on.
    settings = [f"--{name} {value}" for name, value in values.items() if value is not None]
    run(
        chosen,
        quick=quick,
        output=output,
        device=device,
        threads=threads,
        seed=seed,
        rounds=rounds,
        budget=budget,
        workers=workers,
        command=" ".join(["restt bench", *chosen, *flags, *settings]),
    )


@app.command()
def reproduce(
    what: Annotated[str, typer.Argument(metavar="NAME", help=f"{', '.join(EXPERIMENTS)}; all.")],
    profile: Annotated[
        str | None, typer.Option(help="quick (default; smaller, clearly marked) or paper (the real thing).")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Folder of results; default results/<profile>.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Compute a table or figure of the paper, show it beside the paper's numbers, and keep the results.

    Results are kept cell by cell: a stopped run goes on where it was, and finished
    cells are not computed again.
    """
    from restt_paper import reproduce_and_show

    reproduce_and_show(what, profile or "quick", output, device)


@app.command()
def report(
    results: Annotated[Path, typer.Option(help="Folder that holds the folders of results.")] = Path("results"),
    output: Annotated[Path, typer.Option(help="The Markdown page.")] = Path("docs/results.md"),
    page: Annotated[Path, typer.Option(help="The HTML page, which holds everything it shows.")] = Path(
        "docs/report.html"
    ),
) -> None:
    """Show everything measured beside the paper's numbers: in the terminal, as Markdown and as one HTML page."""
    from restt_paper.report import write_report

    write_report(results, output, page).print()
    print(output)
    print(page)


@data_app.command("list")
def list_data() -> None:
    """The data sets, and which are on this machine."""
    from rich.console import Console
    from rich.table import Table

    table = Table("name", "task", "shape", "source", "here")
    absent = []
    for name in restt.data.available():
        about = restt.data.describe(name)
        absent += [] if about.ready else [name]
        table.add_row(name, about.task, about.shape, about.source, "yes" if about.ready else "no")
    Console().print(table)
    # Below the table, which a narrow terminal cuts: these lines are there to be copied.
    for name in absent:
        print(f"restt data fetch {name}")


@data_app.command("fetch")
def fetch_data(name: Annotated[str, typer.Argument(help="A name from `restt data list`.")]) -> None:
    """Bring a data set to this machine and check its hash."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    restt.data.describe(name)  # a wrong name is told before anything is drawn
    with Progress(TextColumn("{task.description}"), BarColumn(), DownloadColumn(), transient=True) as progress:
        tasks: dict[str, TaskID] = {}

        def report(path: str, done: int, total: int) -> None:
            if path not in tasks:
                tasks[path] = progress.add_task(path, total=total)
            progress.update(tasks[path], completed=done)

        paths = restt.data.fetch(name, progress=report)
    if not paths:
        print(f"{name} needs no file")
    for path in paths:
        print(path)
