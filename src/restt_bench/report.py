"""Results as tables in the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from restt_bench.case import Case
from restt_bench.implementations import chosen
from restt_bench.race import Row, median_ms

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def show(result: dict[str, Any], console: Console) -> None:
    """Print the rows of a suite, or the verdicts of a study, which prints its findings as they come.

    A suite's ``result`` has passed the parity gate, or it would not exist.
    """
    from rich.text import Text

    where = result["provenance"]
    console.print(f"\n[bold]{result['title']}[/bold]  ({where['device']}, {where['threads']} threads)")
    if "parity" in result:
        console.print(f"parity: {len(result['parity'])} checks against the reference, all green")
        for case in dict.fromkeys(Case(**row["case"]) for row in result["rows"]):
            console.print(_race_table(case, result["rows"]))
            for row in (row for row in result["rows"] if row["case"] == case.as_dict() and "skipped" in row):
                console.print(Text(f"{row['label']}: {row['skipped']}", style="dim"))
    if result.get("targets"):
        console.print(_target_table(result["targets"]))


def _table(title: str, *columns: str) -> Table:
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="")
    table.add_column(columns[0])
    for column in columns[1:]:
        table.add_column(column, justify="right")
    return table


def _race_table(case: Case, rows: list[Row]) -> Table:
    if all("step" not in row for row in rows):
        return _inference_table(case, rows)
    columns = ("step, ms", "quartiles", "inference, ms", "rounds", "× limit", "restt's speed-up")
    table = _table(str(case), "", *columns)
    own = median_ms(rows, chosen(case.device), case)
    limit = median_ms(rows, "limit", case) or median_ms(rows, "limit-graph", case)
    for row in (row for row in rows if row["case"] == case.as_dict()):
        if "skipped" in row:
            continue
        step, infer = row["step"], row["infer"]
        times_limit = f"{step['median'] / limit:.2f}" if limit else ""
        speedup = f"{step['median'] / own:.1f}×" if own and row["role"] == "baseline" else ""
        quartiles = f"{_ms(step['lower'])}–{_ms(step['upper'])}"
        cells = (_ms(step["median"]), quartiles, _ms(infer["median"]), str(step["rounds"]), times_limit, speedup)
        table.add_row(row["label"], *cells)
    return table


def _inference_table(case: Case, rows: list[Row]) -> Table:
    table = _table(str(case), "", "inference, ms", "quartiles", "rounds")
    for row in (row for row in rows if row["case"] == case.as_dict() and "infer" in row):
        spent = row["infer"]
        quartiles = f"{_ms(spent['lower'])}–{_ms(spent['upper'])}"
        table.add_row(row["label"], _ms(spent["median"]), quartiles, str(spent["rounds"]))
    return table


def _ms(milliseconds: float) -> str:
    return f"{milliseconds:.3f}" if milliseconds < 10 else f"{milliseconds:.1f}"


def _target_table(targets: list[dict[str, Any]]) -> Table:
    table = _table("Targets", "", "target", "measured", "")
    for target in targets:
        sign = "≤" if target["kind"] == "at most" else "≥"
        bound, measured = (f"{target[key]:g} {target['unit']}".strip() for key in ("bound", "measured"))
        colour = "green" if target["met"] else "red"
        table.add_row(target["what"], f"{sign} {bound}", measured, f"[{colour}]{target['verdict']}[/{colour}]")
    return table
