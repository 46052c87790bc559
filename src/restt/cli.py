"""The command line: parses, calls public functions, prints."""

from __future__ import annotations

import errno
import json
import os
import sys
import traceback
import warnings
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import restt
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

# Options that several commands share.
Model = Annotated[Path, typer.Argument(help="The folder that `restt fit` wrote.")]
Data = Annotated[str, typer.Argument(metavar="DATA", help="CSV or Parquet, also compressed; - is standard input.")]
Delimiter = Annotated[str, typer.Option(help="Between fields; found out by default.")]
Encoding = Annotated[str, typer.Option(help="Such as utf-8 or latin-1; found out by default.")]
Missing = Annotated[
    list[str] | None, typer.Option(metavar="TEXT", help="Also means a missing value, like NA and ?. Repeat for more.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace the output if it is there.")]
Json = Annotated[bool, typer.Option("--json", help="JSON for programs on standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but results and errors.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show where in the program an error arose.")]


def main() -> None:
    """Entry point: what went wrong is one line on stderr, not a traceback.

    Exit codes: 0 done, 1 the data or the run, 2 the command itself, 130 stopped by Ctrl-C.
    """
    _replace_what_cannot_be_shown()
    debug = "--debug" in sys.argv[1:]
    with warnings.catch_warnings():
        if not debug:
            warnings.showwarning = _show_warning
        try:
            code = app(prog_name="restt", standalone_mode=False) or 0
            sys.stdout.flush()
        except (typer.Abort, KeyboardInterrupt):
            code = STOPPED
        except BrokenPipeError:
            code = 1
        except Exception as error:
            if debug:
                traceback.print_exc()
            code = _tell(error)
    if code == STOPPED:  # which newer versions of the parser return
        print("restt: stopped", file=sys.stderr)
    if code:
        # What is left in a pipe nobody reads, or for a disk that is full, would be tried again on the way out.
        _leave_the_rest_unsaid()
    sys.exit(code)


def _tell(error: Exception) -> int:
    """Say in a line what went wrong; the exit code. What no user can have caused is raised again."""
    if hasattr(error, "show") and hasattr(error, "exit_code"):  # how the parser tells of a wrong command
        error.show()
        return int(error.exit_code)
    if isinstance(error, OSError) and error.strerror:
        where = f": {error.filename}" if error.filename else ""
        advice = "; free some, or write elsewhere" if error.errno == errno.ENOSPC else ""
        text = f"{error.strerror}{where}{advice}"
    elif isinstance(error, MemoryError):
        text = f"not enough memory: {error or 'try fewer rows or columns'}"
    elif isinstance(error, (ValueError, TypeError, OSError, ImportError, RuntimeError)):
        text = " ".join(str(error).split())
    else:
        raise error
    print(f"restt: {text}", file=sys.stderr)
    return 1


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"restt: note: {' '.join(str(message).split())}", file=sys.stderr)


def _leave_the_rest_unsaid() -> None:
    try:
        sys.stdout.flush()
    except OSError:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())


def _replace_what_cannot_be_shown() -> None:
    """A terminal without ± or σ shows "?" there; stderr never stops at such a character."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"restt {restt.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    pass


@app.command()
def fit(
    data: Data,
    target: Annotated[str, typer.Option("--target", "-t", help="The column to predict.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the model; a new one.")],
    task: Annotated[str, typer.Option(help="regression, classification, or auto: by the target.")] = "auto",
    drop: Annotated[list[str] | None, typer.Option(metavar="COLUMN", help="Leave a column out. Repeatable.")] = None,
    keep: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="Use a column that looks like an identifier.")
    ] = None,
    category: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="Take a column of numbers as categories.")
    ] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A parameter of the estimator.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of splits, fit and resamples.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    delimiter: Delimiter = "auto",
    encoding: Encoding = "auto",
    missing: Missing = None,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Fit a model to a table, score it on rows it has not seen beside a linear model and boosting, and save it.

    The types of the columns are found out and shown. The model folder holds the model, card.json for programs and
    README.md for people.

    Examples:

    `restt fit houses.csv --target price -o model`

    `restt fit patients.csv.gz -t outcome -o model --task classification --drop name --missing unknown`

    `zcat big.csv.gz | restt fit - -t y -o model --json > card.json`
    """
    from restt import workflow
    from restt.workflow import shown
    from restt.workflow.folder import check_output

    check_output(output, force=force)
    say = shown.console(quiet)
    parameters = dict(shown.read_setting(text) for text in setting or [])
    table = workflow.read_table(
        data,
        delimiter=delimiter,
        encoding=encoding,
        missing=missing or (),
        category=category or (),
        drop=drop or (),
        keep=keep or (),
    )
    say.print(shown.columns_table(table.columns.values(), target))
    with shown.progress(say) as progress:
        fitted = workflow.fit_table(
            table, target, task=task, parameters=parameters, seed=seed, device=device, progress=progress
        )
    folder = fitted.save(output, force=force)
    for note in fitted.card.notes:
        say.print(f"note: {note}", markup=False, highlight=False, soft_wrap=True)
    if as_json:
        print(json.dumps({"model": str(folder), "card": fitted.card.to_json()}, ensure_ascii=False))
        return
    shown.console(quiet, stderr=False).print(shown.scores_table(fitted.card))
    print(folder)


@app.command()
def predict(
    model: Model,
    data: Data,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A new CSV file; standard output by default.")
    ] = None,
    interval: Annotated[float, typer.Option(help="What the intervals of a regression hold; 0 for none.")] = 0.9,
    carry: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="Put a column of DATA in front, such as an id.")
    ] = None,
    delimiter: Delimiter = "auto",
    encoding: Encoding = "auto",
    missing: Missing = None,
    force: Force = False,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="One JSON object per row instead of CSV; with --output a summary of the run."),
    ] = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Predict the rows of a table: values with an interval, or classes with their probabilities.

    Columns the model does not use, such as the target, are left out with a note. Rows are read and written in chunks.

    Examples:

    `restt predict model new.csv -o predictions.csv --interval 0.8 --carry id`

    `cat new.csv | restt predict model - | head`
    """
    from restt import workflow
    from restt.workflow import shown
    from restt.workflow.predicting import check_new_output

    if output is not None:
        check_new_output(output, force=force)
    predictions = workflow.Predictions(
        model,
        data,
        interval=interval or None,
        carry=carry or (),
        delimiter=delimiter,
        encoding=encoding,
        missing=missing or (),
    )
    written = workflow.write_predictions(predictions, output, lines=as_json and output is None, force=force)
    for note in predictions.notes:
        shown.console(quiet).print(f"note: {note}", markup=False, highlight=False, soft_wrap=True)
    if written is not None:
        summary = {"output": str(written), "rows": predictions.rows, "notes": predictions.notes}
        print(json.dumps(summary, ensure_ascii=False) if as_json else written)


@app.command()
def explain(
    model: Model,
    data: Data,
    output: Annotated[Path, typer.Option("--output", "-o", help="The page; a new file.")] = Path("page.html"),
    rows: Annotated[int, typer.Option(min=1, help="Rows that can be explored one by one.")] = 200,
    delimiter: Delimiter = "auto",
    encoding: Encoding = "auto",
    missing: Missing = None,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Write a page on a model: how good it is, what it uses, and why it predicts what it does. It needs no network.

    Example:

    `restt explain model data.csv -o page.html`
    """
    from restt import workflow
    from restt.workflow import shown

    notes: list[str] = []
    page = workflow.explain_table(
        model,
        data,
        output,
        rows=rows,
        force=force,
        notes=notes,
        delimiter=delimiter,
        encoding=encoding,
        missing=missing or (),
    )
    for note in notes:
        shown.console(quiet).print(f"note: {note}", markup=False, highlight=False, soft_wrap=True)
    print(json.dumps({"page": str(page), "notes": notes}, ensure_ascii=False) if as_json else page)


@app.command()
def info(as_json: Json = False) -> None:
    """Versions, devices, which backend contracts chains and why, threads, folders, data sets, extras."""
    from restt import workflow
    from restt.workflow import shown

    found = workflow.info()
    if as_json:
        print(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        print("\n".join(shown.info_lines(found)))


@app.command()
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for all that is made.")] = Path("demo-output"),
    seed: Annotated[int, typer.Option(min=0, help="Of splits, fit and resamples.")] = 0,
) -> None:
    """The tour: fit a bundled table, compare with baselines, predict, explain, and write the page."""
    from restt.demo import run

    run(output, seed=seed)


@app.command()
def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Suites: main, inference, small, scaling-r, scaling-n, scaling-b, scaling-s, full-tensor. Studies: "
            "import, check, tune, precision, guard, two-epochs, overhead, means, crossover, calibration, tables, "
            "explain, volterra. Groups: scaling, all."
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
    memory: Annotated[bool, typer.Option("--memory", help="Also peak memory, a process per implementation.")] = False,
    profile: Annotated[bool, typer.Option("--profile", help="Also where our step spends its time.")] = False,
    plots: Annotated[bool, typer.Option(help="Draw the suites with a varying size.")] = True,
    workers: Annotated[int, typer.Option(min=1, help="Processes that compile GPU kernels in check and tune.")] = 1,
) -> None:
    """Time training steps against baselines and the machine's limit; refuses to compare while parity is red."""
    from restt_bench import run

    chosen = names or (["all"] if quick else ["main"])
    flags = [f"--{name}" for name, given in (("quick", quick), ("memory", memory), ("profile", profile)) if given]
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
        memory=memory,
        profile=profile,
        plots=plots,
        workers=workers,
        command=" ".join(["restt bench", *chosen, *flags, *settings]),
    )


@app.command()
def meanfield(
    topology: Annotated[str, typer.Argument(help="residual, plain, linear or volterra.")] = "residual",
    sites: Annotated[int, typer.Option(min=1, help="Number of sites N.")] = 196,
    bond_dim: Annotated[int, typer.Option(min=1, help="Bond dimension r.")] = 100,
    sigma2: Annotated[float | None, typer.Option(help="σ_w²; left out, the stable value.")] = None,
    second_moment: Annotated[float, typer.Option(help="E Σ_i x(n,i)²; the trigonometric map's is 1.")] = 1.0,
    init: Annotated[str, typer.Option(help="paper, balanced or orthogonal.")] = "paper",
    runs: Annotated[int, typer.Option(min=0, help="Also measure on this many random models; 0 for theory only.")] = 0,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    picture: Annotated[Path | None, typer.Option(help="Save q and χ along the chain as png, svg or pdf.")] = None,
) -> None:
    """Will signals and gradients survive this chain? The mean-field theory's answer, before any training."""
    from restt.meanfield.summary import show

    show(topology, sites, bond_dim, "auto" if sigma2 is None else sigma2, second_moment, init, runs, seed, picture)


@app.command()
def reproduce(
    what: Annotated[str, typer.Argument(metavar="NAME", help=f"{', '.join(EXPERIMENTS)}; all; pack or unpack.")],
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="For pack and unpack: the .tar.gz file.")
    ] = None,
    profile: Annotated[
        str | None, typer.Option(help="quick (default; smaller, clearly marked) or paper (the real thing).")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Folder of results; default results/<profile>.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Compute a table or figure of the paper, show it beside the paper's numbers, and keep the results.

    Results are kept cell by cell: a stopped run goes on where it was, finished
    cells are not computed again, several processes may fill one folder together.

    `pack FILE` bundles a folder of results in one file, `unpack FILE` brings them
    back and overwrites nothing.
    """
    from restt_paper import commands

    if what in ("pack", "unpack"):
        if file is None:
            raise ValueError(f"restt reproduce {what} needs a file")
        if what == "pack":
            commands.pack(file, profile, output)
        elif not commands.unpack(file, profile, output):
            raise typer.Exit(1)
    elif file is not None:
        raise ValueError(f"restt reproduce {what} takes no file, got {file}")
    else:
        commands.reproduce(what, profile or "quick", output, device)


@app.command()
def report(
    results: Annotated[Path, typer.Option(help="Folder that holds the folders of results.")] = Path("results"),
    output: Annotated[Path, typer.Option(help="The Markdown page.")] = Path("docs/results.md"),
    page: Annotated[Path, typer.Option(help="The HTML page, which holds everything it shows.")] = Path(
        "docs/report.html"
    ),
) -> None:
    """Show everything measured beside the paper's numbers: in the terminal, as Markdown and as one HTML page."""
    from restt_paper.commands import write_report

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
