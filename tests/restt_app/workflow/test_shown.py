import io

from rich.console import Console

from restt_app.workflow.columns import Column
from restt_app.workflow.shown import columns_table, progress, scores_table


def drawn(*things):
    out = io.StringIO()
    say = Console(file=out, width=120)
    for thing in things:
        say.print(thing)
    return out.getvalue()


def test_names_are_shown_as_they_are_and_wide_tables_are_cut():
    columns = [Column("[red]x[/red]", "category", "text", 2, 1, levels=["[b]"]), Column("y", "number", "1234.5", 0, 2)]
    shown = drawn(columns_table(columns, "y"))
    assert "[red]x[/red]" in shown
    assert "category, 1: [b]" in shown
    assert "the target" in shown
    assert "40 more" in drawn(columns_table(columns[1:] * 100))


def test_scores_have_their_intervals(fitted):
    shown = drawn(scores_table(fitted.card))
    own = fitted.card.scores[0]
    assert f"{own['value']:.4g} [{own['low']:.3g}, {own['high']:.3g}]" in shown
    assert "60 held-out rows (5 folds)" in shown


def test_progress_says_what_is_done():
    out = io.StringIO()
    say = Console(file=out, force_terminal=True, width=120)
    with progress(say) as tell:
        tell("scoring ResTT, fold 1 of 5", 0.25)
    assert "scoring ResTT, fold 1 of 5" in out.getvalue()
