"""The command line: parses, calls public functions, prints."""

from __future__ import annotations

import sys
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
)
data_app = typer.Typer(help="Data sets: what there is, and getting it.", no_args_is_help=True)
app.add_typer(data_app, name="data")


def main() -> None:
    """Entry point: what a user did wrong is one line on stderr, not a traceback."""
    _replace_what_cannot_be_shown()
    try:
        app()
    except (ValueError, TypeError, OSError, ImportError, RuntimeError) as error:
        print(f"restt: {error}", file=sys.stderr)
        sys.exit(1)


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
def demo(
    output: Annotated[Path, typer.Option(help="Folder for the figure and the numbers.")] = Path("demo-output"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of splits, weights and data order.")] = 0,
) -> None:
    """Train on scikit-learn's bundled digits and diabetes data, compare with linear models, save a figure."""
    from restt.demo import run

    run(output, seed=seed)


@app.command()
def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Suites: main, inference, small, scaling-r, scaling-n, scaling-b, scaling-s, full-tensor. Studies: "
            "import, check, tune, tune-step, long-chain, ragged, precision, guard, two-epochs, overhead, loops, means, "
            "crossover, calibration, tables, explain, volterra. Groups: scaling, all."
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
) -> None:
    """Show everything measured beside the paper's numbers, in the terminal and as one Markdown page."""
    from restt_paper.commands import write_report

    write_report(results, output).print()
    print(output)


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
