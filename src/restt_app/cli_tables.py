"""The commands for people's own tables: each parses, calls the public function of :mod:`restt.workflow`, and prints.

Standard output holds results alone; what is said on the way goes to standard error.
"""

from __future__ import annotations

import ctypes
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

DIFFERENT = 3  # exit code of `restt check` where rows differ from those of the fit

# Options that several commands share.
Model = Annotated[Path, typer.Argument(help="The folder that `restt fit` wrote.")]
Data = Annotated[str, typer.Argument(metavar="DATA", help="CSV or Parquet, also compressed; - is standard input.")]
Delimiter = Annotated[str, typer.Option(help="Between fields; found out by default.")]
Encoding = Annotated[str, typer.Option(help="Such as utf-8 or latin-1; found out by default.")]
Missing = Annotated[
    list[str] | None, typer.Option(metavar="TEXT", help="Also means a missing value, like NA and ?. Repeat for more.")
]
Layout = Annotated[
    list[str] | None,
    typer.Option(
        metavar="[COLUMN=]LAYOUT",
        help="How numbers or dates are written: 1,234.5 or 1234,5, d/m/Y or m/d/Y. Repeat for more.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace the output if it is there.")]
Json = Annotated[bool, typer.Option("--json", help="JSON for programs on standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but results and errors.")]


def _reading(delimiter: str, encoding: str, missing: list[str] | None, layout: list[str] | None) -> dict[str, Any]:
    return {"delimiter": delimiter, "encoding": encoding, "missing": missing or (), "layout": layout or ()}


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
    effort: Annotated[
        Literal["quick", "auto", "best"],
        typer.Option(help="quick: seconds; auto: quick first, then better; best: slower still."),
    ] = "auto",
    time_limit: Annotated[
        float | None,
        typer.Option(min=1.0, metavar="SECONDS", help="Keep the quick model if a better one takes more."),
    ] = None,
    group: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Rows of one value are never both fitted to and scored on.")
    ] = None,
    time: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Score on the latest fifth of the rows by this column.")
    ] = None,
    test: Annotated[Path | None, typer.Option(metavar="FILE", help="Score on the rows of this file.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of splits, fit and resamples.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    delimiter: Delimiter = "auto",
    encoding: Encoding = "auto",
    missing: Missing = None,
    layout: Layout = None,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Fit a model to a table, score it on rows it has not seen beside a linear model and boosting, and save it.

    The types of the columns are found out and shown. The model folder holds the model, card.json for programs and
    README.md for people. With --force these three are replaced if they are as restt wrote them; other files stay.

    Example calls:

    `restt fit houses.csv --target price -o model`

    `restt fit patients.csv.gz -t outcome -o model --task classification --drop name --missing unknown`

    `restt fit visits.csv -t outcome -o model --group patient_id`

    `zcat big.csv.gz | restt fit - -t y -o model --effort quick --json > card.json`
    """
    from restt_app import workflow
    from restt_app.workflow import shown
    from restt_app.workflow.card import CARD, check_output

    check_output(output, force=force)
    say = shown.console(quiet)
    with say.status("reading"):
        table = workflow.read_table(
            data,
            category=category or (),
            drop=drop or (),
            keep=keep or (),
            **_reading(delimiter, encoding, missing, layout),
        )
    say.print(shown.columns_table(table.columns.values(), target))
    saved: list[workflow.FittedTable] = []

    def save_quick(fitted: workflow.FittedTable) -> None:
        fitted.save(output, force=force)
        saved.append(fitted)
        shown.tell(say, [f"quick answer, saved: {shown.headline(fitted.card)}; a better one is being fitted"])

    with shown.progress(say) as progress:
        try:
            with limited_time(time_limit):
                fitted = workflow.fit_table(
                    table,
                    target,
                    task=task,
                    effort=effort,
                    group=group,
                    time=time,
                    test=test,
                    seed=seed,
                    device=device,
                    progress=progress,
                    notice=lambda note: shown.tell(say, [note]),
                    first=save_quick,
                )
            fitted.save(output, force=force or bool(saved))
        except TimeoutError as error:
            if not saved:
                raise ValueError(f"{error}, before a quick model was there: raise --time-limit") from None
            fitted = saved[0]
            shown.tell(say, [f"{error}: the quick model is kept"])
    if as_json:
        card = json.loads((output / CARD).read_text(encoding="utf-8"))
        print(json.dumps({"model": str(output), "card": card}, ensure_ascii=False))
        return
    shown.console(quiet, stderr=False).print(shown.scores_table(fitted.card))
    print(output)


def predict(
    model: Model,
    data: Data,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A new CSV file; standard output (-) by default.")
    ] = None,
    interval: Annotated[float, typer.Option(help="What the intervals of a regression hold; 0 for none.")] = 0.9,
    carry: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="Put a column of DATA in front, such as an id.")
    ] = None,
    delimiter: Delimiter = "auto",
    encoding: Encoding = "auto",
    missing: Missing = None,
    layout: Layout = None,
    force: Force = False,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="One JSON object per row instead of CSV; with --output a summary of the run."),
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Predict the rows of a table: values with an interval, or classes with their probabilities.

    Columns the model does not use, such as the target, are left out with a note. Rows are read and written in chunks.

    Example calls:

    `restt predict model new.csv -o predictions.csv --interval 0.8 --carry id`

    `cat new.csv | restt predict model - | head`
    """
    from restt_app import workflow
    from restt_app.workflow import shown
    from restt_app.workflow.predicting import check_new_output

    if output == Path("-"):
        output = None
    if output is not None:
        check_new_output(output, force=force)
    say = shown.console(quiet)
    status: Any = say.status("predicting") if output is not None else nullcontext()
    with status:
        predictions = workflow.Predictions(
            model,
            data,
            interval=interval or None,
            carry=carry or (),
            **_reading(delimiter, encoding, missing, layout),
        )
        written = workflow.write_predictions(predictions, output, lines=as_json and output is None, force=force)
    shown.tell(say, predictions.notes)
    if written is not None:
        summary = {"output": str(written), "rows": predictions.rows, "notes": predictions.notes}
        print(json.dumps(summary, ensure_ascii=False) if as_json else written)


def explain(
    model: Model,
    data: Data,
    output: Annotated[Path, typer.Option("--output", "-o", help="The page; a new file.")] = Path("page.html"),
    rows: Annotated[int, typer.Option(min=1, help="Rows that can be explored one by one.")] = 200,
    delimiter: Delimiter = "auto",
    encoding: Encoding = "auto",
    missing: Missing = None,
    layout: Layout = None,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a page on a model: how good it is, what it uses, and why it predicts what it does. It needs no network.

    Example:

    `restt explain model data.csv -o page.html`
    """
    from restt_app import workflow
    from restt_app.workflow import shown

    notes: list[str] = []
    say = shown.console(quiet)
    with say.status("explaining"):
        reading = _reading(delimiter, encoding, missing, layout)
        page = workflow.explain_table(model, data, output, rows=rows, force=force, notes=notes, **reading)
    shown.tell(say, notes)
    print(json.dumps({"page": str(page), "notes": notes}, ensure_ascii=False) if as_json else page)


def compare(
    a: Annotated[Path, typer.Argument(help="A folder that `restt fit` wrote.")],
    b: Annotated[Path, typer.Argument(help="Another, of the same target.")],
    data: Data,
    seed: Annotated[int, typer.Option(min=0, help="Of the resamples.")] = 0,
    delimiter: Delimiter = "auto",
    encoding: Encoding = "auto",
    missing: Missing = None,
    layout: Layout = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare two models on the same rows: scores, differences with 95 % intervals, and where they differ.

    Example:

    `restt compare old new held-out.csv`
    """
    from restt_app import workflow
    from restt_app.workflow import shown

    say = shown.console(quiet)
    with say.status("comparing"):
        result = workflow.compare_tables(a, b, data, seed=seed, **_reading(delimiter, encoding, missing, layout))
    shown.tell(say, result["notes"])
    if as_json:
        print(json.dumps(result, ensure_ascii=False))
        return
    print("\n".join(shown.compared_lines(result)))


def check(
    model: Model,
    data: Data,
    seed: Annotated[int, typer.Option(min=0, help="Of the resamples.")] = 0,
    delimiter: Delimiter = "auto",
    encoding: Encoding = "auto",
    missing: Missing = None,
    layout: Layout = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Check whether new rows are like those of the fit; exit code 3 if not.

    Values outside the range, unseen levels and missing values are reported where chance does not explain them, and
    scores where the target is there and they are worse than on the held-out rows.

    Example:

    `restt check model new.csv && restt predict model new.csv -o predictions.csv`
    """
    from restt_app import workflow
    from restt_app.workflow import shown

    say = shown.console(quiet)
    with say.status("checking"):
        result = workflow.check_table(model, data, seed=seed, **_reading(delimiter, encoding, missing, layout))
    shown.tell(say, result["notes"])
    print(json.dumps(result, ensure_ascii=False) if as_json else "\n".join(shown.checked_lines(result)))
    if result["findings"]:
        raise typer.Exit(DIFFERENT)


def serve(
    model: Model,
    host: Annotated[str, typer.Option(help="Address to listen on; only this machine by default.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535)] = 8000,
) -> None:
    """Answer requests for predictions and explanations over HTTP until stopped: /predict, /explain, /health, /docs.

    Example:

    `restt serve model --port 8000`
    """
    from restt_app.workflow import shown
    from restt_app.workflow.serving import serve as run

    shown.tell(shown.console(), [f"serving {model} on http://{host}:{port}, its interface on /docs; Ctrl-C stops"])
    run(model, host=host, port=port)


def info(as_json: Json = False) -> None:
    """Versions, devices, which backend contracts chains and why, threads, folders, data sets, extras."""
    from restt_app import workflow

    result = workflow.info()
    if as_json:
        print(json.dumps(result, indent=2, ensure_ascii=False))
        return
    for name, value in result.items():
        lines = (
            [f"{key}: {entry}" for key, entry in value.items()] if isinstance(value, dict) else str(value).split("\n")
        )
        print(f"{name:10}", "\n           ".join(lines))


class _TimeIsOver(BaseException):
    """Raised in the thread whose time is over; a BaseException, so that no handler of errors catches it."""


@contextmanager
def limited_time(seconds: float | None) -> Iterator[None]:
    """TimeoutError in this thread after so many seconds, between two steps of Python; None for no limit.

    It needs no signal, which a process in the background may ignore.

    >>> with limited_time(0.01):
    ...     while True:
    ...         pass
    Traceback (most recent call last):
    TimeoutError: stopped after 0.01 s
    """
    if seconds is None:
        yield
        return
    raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
    thread, lock, ended = ctypes.c_ulong(threading.get_ident()), threading.Lock(), False

    def stop() -> None:
        with lock:
            if not ended:
                raise_in(thread, ctypes.py_object(_TimeIsOver))

    timer = threading.Timer(seconds, stop)
    timer.daemon = True
    timer.start()
    try:
        yield
    except _TimeIsOver:
        raise TimeoutError(f"stopped after {seconds:g} s") from None
    finally:
        timer.cancel()
        with lock:
            ended = True
            raise_in(thread, None)  # one that has not come yet would come outside
