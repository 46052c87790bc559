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
    metrics = list(dict.fromkeys(one["metric"] for one in card.scores))
    for name in metrics:
        table.add_column(words(name), justify="right")
    found = {(one["model"], one["metric"]): interval(one).replace("[", "\\[") for one in card.scores}
    for model in dict.fromkeys(one["model"] for one in card.scores):
        table.add_row(model, *(found[model, name] for name in metrics))
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
    first = next(one for one in card.scores if one["model"] == OURS)
    plain = [one for one in card.scores if one["metric"] == first["metric"]][-1]
    return f"{words(first['metric'])} {interval(first)}, {plain['model']} {plain['value']:.3g}"


def compared_lines(found: dict[str, Any]) -> list[str]:
    """Lines of text for the result of :func:`restt.workflow.compare_tables`."""
    lines = [f"{found['rows']} rows"]
    for one in found["metrics"]:
        gap = interval({"value": one["difference"], "low": one["low"], "high": one["high"]})
        better = f"{one['better']} is better" if one["better"] else "no clear difference"
        lines.append(f"{words(one['metric']):18} a {one['a']:.4g}  b {one['b']:.4g}  a - b {gap}: {better}")
    apart = found["apart"]
    lines.append(f"predictions differ by {apart['mean']:.3g} on average, by {apart['largest']:.3g} at most, in rows:")
    lines += [f"  {one['row']}: a {one['a']}, b {one['b']}, observed {one['observed']}" for one in apart["rows"]]
    for letter in "ab":
        for one in found[f"worse_{letter}"]:
            lines.append(f"{letter} is worse where {one['column']} is {one['values']} ({one['rows']} rows)")
    return lines


def checked_lines(found: dict[str, Any]) -> list[str]:
    """Lines of text for the result of :func:`restt.workflow.check_table`."""
    lines = [
        f"{one['column']}: {one['what']} in {one['rows']} rows ({100 * one['share']:.3g} %)"
        for one in found["findings"]
    ]
    lines += [
        f"{words(one['metric'])} {interval(one)}, on held-out rows {one['held_out']:.4g}" for one in found["scores"]
    ]
    verdict = "differ from" if found["findings"] else "are like"
    return [*lines, f"{found['rows']} rows {verdict} those of the fit"]
