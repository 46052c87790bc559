"""What a page says of a model, against the functions of :mod:`restt.explain` on which it rests."""

import re

import numpy as np
import pandas as pd
import pytest

from restt import ResTTNetClassifier, ResTTNetRegressor
from restt.explain import effect, top_interactions, variance_shares
from restt_app.pages.learned import SHARES, _relevance, _side, _Subject, learned
from restt_app.pages.numbers import Texts, percent, short, signed
from tests.restt_app.pages.test_charts import drawn


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.random(60), "b": rng.random(60), "kind": rng.choice(list("uvw"), 60)})
    X.loc[::7, "b"] = np.nan
    X.loc[::11, "kind"] = None
    return X, 3 * X.a * np.nan_to_num(X.b) + (X.kind == "u")


def of(model, X, outputs):
    local = model.explain_local(X[:10])
    texts = Texts(local.names, [])
    return learned(model, X, model.numbers(X), local, outputs, texts, "m"), local


@pytest.fixture(scope="module")
def regression(rows):
    model = ResTTNetRegressor(epochs=30, random_state=0).fit(*rows)
    return model, *of(model, rows[0], ("y",))


@pytest.fixture(scope="module")
def classification(rows):
    model = ResTTNetClassifier(epochs=20, random_state=0).fit(rows[0], np.digitize(rows[1], [0.3, 1.0]))
    return model, *of(model, rows[0], ("low", "middle", "high"))


def test_bars_have_their_size_its_interval_and_the_shares_as_numbers():
    sizes = np.array([[1.0, 5.0], [3.0, 5.0], [2.0, 5.0], [2.0, 8.0]])
    found = _relevance(("a", "b"), sizes, np.array([0.3, 0.7]), np.array([0.1, 0.5]), (1, 0), "m")
    first, second = found.chart.rows
    error = 1.96 * np.sqrt(0.5) / 2
    assert (second.name, second.start, second.end, second.ends) == ("a", 0.0, 2.0, (2 - error, 2 + error))
    assert (first.text, second.text) == ("5.75 ± 1.3", "2 ± 0.69")
    assert [[cell.value for cell in row] for row in found.numbers.rows] == [[None, 5.75, 0.7, 0.5], [None, 2, 0.3, 0.1]]
    assert [cell.text for cell in found.numbers.rows[0]] == ["b", "5.75", "70 %", "50 %"]
    assert found.numbers.numeric == {1, 2, 3}
    assert found.caption == "Mean size of a column's contribution, m, over 4 rows, with its 95 % interval."
    many = _relevance(tuple("abcdefghijklmnopqrstu"), np.ones((2, 21)), *np.ones((2, 21)), tuple(range(21)), "m")
    assert many.caption.endswith("interval. The first 20 of 21 columns.")
    assert (len(many.chart.rows), len(many.numbers.rows)) == (20, 21)


@pytest.mark.parametrize("kind", ["regression", "classification"])
def test_shares_are_those_of_the_library_weighed_by_the_outputs_variance(kind, rows, request):
    model, found, local = request.getfixturevalue(kind)
    terms = top_interactions(model, rows[0], 10, min(model.module_.sites, 4)).terms
    shares = variance_shares(model, rows[0], [term.columns for term in terms], SHARES)
    weights = shares.variance / shares.variance.sum()
    orders = shares.of_orders @ weights
    assert found.order_shares == pytest.approx(orders[1:])
    words = ("comes from single columns", "from pairs", "from triples")
    assert found.orders == ", ".join(f"{percent(orders[k])} {words[k - 1]}" for k in (1, 2, 3))
    assert [[cell.text for cell in row] for row in found.terms.rows] == [
        [term.label, str(len(term.columns)), percent(share)]
        for term, share in zip(terms, shares.of_terms @ weights, strict=True)
    ]
    sizes = np.abs(local.on().values).mean(axis=2).mean(axis=0)
    assert found.ranking == tuple(np.argsort(-sizes))
    assert [row.end for row in found.relevance.chart.rows] == pytest.approx(np.sort(sizes)[::-1])
    table = [[cell.value for cell in row] for row in found.relevance.numbers.rows]
    np.testing.assert_allclose(
        [row[1:] for row in table],
        np.stack([sizes, shares.total @ weights, shares.alone @ weights], axis=1)[list(found.ranking)],
    )
    assert [drawing.title for drawing in found.effects] == [row.name for row in found.relevance.chart.rows]
    # Outputs by falling variance say which have lines, in their own order.
    assert found.lines == (("y",) if kind == "regression" else ("low", "middle", "high"))


def test_an_effect_is_the_change_of_the_average_row(regression, rows):
    model, found, _ = regression
    drawings = {drawing.title: drawing.chart for drawing in found.effects}
    curve = effect(model, 1, rows[0])
    grid, values = curve.grids[0], curve.values.numpy()[:, 0]
    known = ~np.isnan(grid)
    label = f"Effect of b, from {signed(values.min())} to {signed(values.max())} m"
    assert f'aria-label="{label}"' in drawings["b"]
    low, high = min(0, values.min()), max(0, values.max())
    room = 0.05 * (high - low)
    places = np.interp(values, (low - room, high + room), (158.0, 24.0))
    assert drawn(drawings["b"], "dashed", "y1") == [f"{places[~known][0]:.1f}"]
    across = np.interp(grid[known], (grid[known].min(), grid[known].max()), (48.0, 330.0))
    steps = "L".join(f"{x:.1f} {y:.1f}" for x, y in zip(across, places[known], strict=True))
    assert drawn(drawings["b"], "line s0", "d") == [f"M{steps}"]
    heights = np.histogram(rows[0].b.dropna(), 24)[0]
    assert drawn(drawings["b"], "rows", "height") == [f"{22 * count / heights.max():.1f}" for count in heights]
    levels = effect(model, 2, rows[0])
    bars = drawings["kind"].rows
    sizes = levels.values.numpy()[:, 0]
    assert [bar.end for bar in bars] == pytest.approx(sizes, rel=1e-5)
    counts = [int((rows[0].kind == bar.name).sum() or rows[0].kind.isna().sum()) for bar in bars]
    assert [bar.remark for bar in bars] == [f"{count} rows" for count in counts]
    assert {bar.name for bar in bars} == {"u", "v", "w", "missing"}
    for bar in bars:
        assert (bar.start, sum(bar.ends) / 2) == (0.0, pytest.approx(bar.end))
        assert bar.text == f"{signed(bar.end)} ± {short(bar.ends[1] - bar.end, 2)}"


def test_bars_of_levels_are_of_the_output_that_moves_most(classification, rows):
    _, found, _ = classification
    chart = next(drawing.chart for drawing in found.effects if drawing.title == "kind")
    assert re.search(r" of (low|middle|high)$", chart.caption)
    assert "missing" in {bar.name for bar in chart.rows}


def test_a_surface_shows_what_the_pair_adds_and_where_most(regression, rows):
    model, found, local = regression
    surface = next(one for one in found.surfaces if one.title == "a × kind")
    a = effect(model, 0, rows[0]).grids[0]
    grids = [np.linspace(a.min(), a.max(), 21).tolist(), ["u", "v", "w"]]
    values = effect(model, [0, 2], rows[0], grids).values.numpy()[..., 0]
    top = np.unravel_index(np.abs(values).argmax(), values.shape)
    where = f"a = {short(grids[0][top[0]])}, kind = {grids[1][top[1]]}"
    assert f"{signed(values[top])} m at {where}. Beyond what either adds alone." in surface.caption
    share = next(row[2].text for row in found.terms.rows if row[0].text == "a × kind")
    assert surface.caption.startswith(f"{share} of the variance; at most ")
    limit = 2 * local.on().predictions.std()
    assert drawn(surface.chart, "tick", "text")[-1] == signed(limit)
    assert len(re.findall("data-tip", surface.chart)) == values.size
    assert f'data-tip="a = {short(grids[0][3])}, kind = w: {signed(values[3, 2])}"' in surface.chart


def test_values_along_a_side_leave_out_what_is_missing():
    curve = type("Curve", (), {"grids": [np.array([1.0, 3.0, np.nan])]})
    assert _side(curve) == np.linspace(1, 3, 21).tolist()
    curve.grids = [np.array(["u", "v", np.nan], dtype=object)]
    assert _side(curve) == ["u", "v"]


def test_changes_of_probabilities_are_taken_at_the_average_row(classification):
    subject = _Subject(classification[0], None, np.zeros(0), np.array([1.0, 0.0, 0.0]), (), [0], lambda _: str, "m")
    scores, start = np.array([[0.5, 0, 0], [0, -2.0, 0]]), np.array([[0.0, 0, 0], [0, 0, 1.0]])

    def shares(*logits):
        return np.exp(logits) / np.exp(logits).sum()

    before = shares(1, 0, 0)
    np.testing.assert_allclose(subject.changed(scores), [shares(1.5, 0, 0) - before, shares(1, -2, 0) - before])
    np.testing.assert_allclose(subject.changed(scores, start)[1], shares(1, -2, 1) - shares(1, 0, 1))
