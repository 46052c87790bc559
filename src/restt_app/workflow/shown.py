"""How tables, scores, progress and the machine look in a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from restt_app.workflow.card import Card, holds, interval
from restt_app.workflow.columns import Column
from restt_app.workflow.metrics import words
from restt_app.workflow.scoring import OURS

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

MOST_SHOWN = 60  # columns of a wide table


def console(quiet: bool = False, *, stderr: bool = True) -> Console:
    """Where people read: standard error, so that standard output holds results alone."""
    from rich.console import Console

    return Console(stderr=stderr, quiet=quiet)


def tell(say: Console, notes: Iterable[str]) -> None:
    """Print notes, one line each."""
    for note in notes:
        say.print(f"note: {note}", markup=False, highlight=False, soft_wrap=True)


def columns_table(columns: Iterable[Column], target: str | None = None) -> Table:
    """Table of the columns: contents, and role in the model."""
    from rich.markup import escape
    from rich.table import Table

    table = Table("column", "holds", "missing", "")
    listed = list(columns)
    for column in listed[:MOST_SHOWN]:
        note = "the target" if column.name == target else column.note
        entry = column.to_json()
        table.add_row(*(escape(cell) for cell in (column.name, holds(entry), str(column.missing or ""), note)))
    if len(listed) > MOST_SHOWN:
        table.add_row("…", f"{len(listed) - MOST_SHOWN} more", "", "")
    return table


def scores_table(card: Card) -> Table:
    """The scores of all models on the held-out rows."""
    from rich.table import Table

    held = card.held_out
    table = Table(title=f"{held['rows']} held-out rows ({held['method']}), value [95 % interval]", title_justify="left")
    table.add_column("model")
    metrics = list(dict.fromkeys(entry["metric"] for entry in card.scores))
    for name in metrics:
        table.add_column(words(name), justify="right")
    results = {(entry["model"], entry["metric"]): interval(entry).replace("[", "\\[") for entry in card.scores}
    for model in dict.fromkeys(entry["model"] for entry in card.scores):
        table.add_row(model, *(results[model, name] for name in metrics))
    return table


@contextmanager
def progress(say: Console) -> Iterator[Callable[[str, float], None]]:
    """A bar with the time left, to be told ``(what, share)``; where there is no terminal, a line for each step."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    if not say.is_terminal:
        began = time.monotonic()

        def line(what: str, share: float) -> None:
            left = (time.monotonic() - began) * (1 - share) / max(share, 1e-9)
            more = f", about {left:.0f} s left" if share < 1 else ""
            say.print(f"{100 * share:3.0f} % {what}{more}", markup=False, highlight=False, soft_wrap=True)

        yield line
        return
    parts = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TextColumn("left"))
    with Progress(*parts, TimeRemainingColumn(), console=say, transient=True, disable=say.quiet) as bar:
        task = bar.add_task("fitting", total=1.0)

        def tell(what: str, share: float) -> None:
            bar.update(task, description=what, completed=share)

        yield tell


def headline(card: Card) -> str:
    """ResTT's first score beside that of the simplest baseline, in a line."""
    first = next(entry for entry in card.scores if entry["model"] == OURS)
    plain = [entry for entry in card.scores if entry["metric"] == first["metric"]][-1]
    return f"{words(first['metric'])} {interval(first)}, {plain['model']} {plain['value']:.3g}"


def compared_lines(result: dict[str, Any]) -> list[str]:
    """Lines of text for the result of :func:`restt.workflow.compare_tables`."""
    lines = [f"{result['rows']} rows"]
    for entry in result["metrics"]:
        gap = interval({"value": entry["difference"], "low": entry["low"], "high": entry["high"]})
        better = f"{entry['better']} is better" if entry["better"] else "no clear difference"
        lines.append(f"{words(entry['metric']):18} a {entry['a']:.4g}  b {entry['b']:.4g}  a - b {gap}: {better}")
    apart = result["apart"]
    lines.append(f"predictions differ by {apart['mean']:.3g} on average, by {apart['largest']:.3g} at most, in rows:")
    lines += [
        f"  {entry['row']}: a {entry['a']}, b {entry['b']}, observed {entry['observed']}" for entry in apart["rows"]
    ]
    for letter in "ab":
        for entry in result[f"worse_{letter}"]:
            lines.append(f"{letter} is worse where {entry['column']} is {entry['values']} ({entry['rows']} rows)")
    return lines


def checked_lines(result: dict[str, Any]) -> list[str]:
    """Lines of text for the result of :func:`restt.workflow.check_table`."""
    lines = [
        f"{entry['column']}: {entry['what']} in {entry['rows']} rows ({100 * entry['share']:.3g} %)"
        for entry in result["findings"]
    ]
    lines += [
        f"{words(entry['metric'])} {interval(entry)}, on held-out rows {entry['held_out']:.4g}"
        for entry in result["scores"]
    ]
    verdict = "differ from" if result["findings"] else "are like"
    return [*lines, f"{result['rows']} rows {verdict} those of the fit"]
