import io

from rich.console import Console

from restt_app.workflow import Card
from restt_app.workflow.card import _Code, holds
from restt_app.workflow.columns import Column
from restt_app.workflow.shown import checked_lines, columns_table, compared_lines, headline, progress, scores_table


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
    assert "more" not in drawn(columns_table(columns[1:] * 60))


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


def test_without_a_terminal_progress_is_a_line_for_each_step():
    out = io.StringIO()
    with progress(Console(file=out)) as tell:
        tell("half of it", 0.5)
        tell("all of it", 1.0)
    half, whole = out.getvalue().splitlines()
    assert half.startswith(" 50 % half of it, about 0 s left")
    assert whole == "100 % all of it"


def test_the_headline_is_the_first_score_beside_the_last_model():
    def score(model, metric, value):
        return {"model": model, "metric": metric, "value": value, "low": value - 0.1, "high": value + 0.1}

    scores = [score(model, metric, value) for model, value in (("ResTT", 0.5), ("x", 0.2)) for metric in ("r2", "rmse")]
    assert headline(Card("regression", "y", scores=scores)) == "R² 0.5 [0.4, 0.6], x 0.2"


def test_a_comparison_is_told_in_lines():
    entry = {"metric": "r2", "a": 0.5, "b": 0.25, "difference": 0.25, "low": 0.125, "high": 0.375, "better": "a"}
    result = {
        "rows": 80,
        "metrics": [entry, {**entry, "metric": "rmse", "better": ""}],
        "apart": {"mean": 0.12345, "largest": 2.0, "rows": [{"row": 3, "a": 1.0, "b": ["u", 0.5], "observed": None}]},
        "worse_a": [{"column": "k", "values": "u", "rows": 12}],
        "worse_b": [{"column": "a", "values": "1 to 2", "rows": 16}],
    }
    assert compared_lines(result) == [
        "80 rows",
        "R²                 a 0.5  b 0.25  a - b 0.25 [0.125, 0.375]: a is better",
        "RMSE               a 0.5  b 0.25  a - b 0.25 [0.125, 0.375]: no clear difference",
        "predictions differ by 0.123 on average, by 2 at most, in rows:",
        "  3: a 1.0, b ['u', 0.5], observed None",
        "a is worse where k is u (12 rows)",
        "b is worse where a is 1 to 2 (16 rows)",
    ]


def test_a_check_ends_in_its_verdict():
    finding = {"column": "a", "what": "missing", "rows": 5, "share": 0.0625}
    score = {"metric": "r2", "value": 0.5, "low": 0.25, "high": 0.75, "held_out": 0.875}
    assert checked_lines({"rows": 80, "findings": [finding], "scores": [score]}) == [
        "a: missing in 5 rows (6.25 %)",
        "R² 0.5 [0.25, 0.75], on held-out rows 0.875",
        "80 rows differ from those of the fit",
    ]
    assert checked_lines({"rows": 80, "findings": [], "scores": []}) == ["80 rows are like those of the fit"]


def test_columns_hold_a_range_or_four_levels():
    assert holds({"kind": "category", "levels": list("abcd"), "distinct": 4}) == "category, 4: a, b, c, d"
    assert holds({"kind": "category", "levels": list("abc"), "distinct": 4}) == "category, 4: a, b, c, …"
    assert holds({"kind": "date", "range": ["2020-01-01", "2021-01-01"]}) == "date, 2020-01-01 to 2021-01-01"
    assert holds({"kind": "number", "range": [1234567.0, 3]}) == "number, 1.23457e+06 to 3"
    assert holds({"kind": "unread"}) == "unread"
    assert [_Code.of(name) for name in ("a b-c", "a`b")] == ["`a b-c`", "a\\`b"]
