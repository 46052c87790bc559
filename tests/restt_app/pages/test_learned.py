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
    """The page of some of the rows, the background of which is that of the fit."""
    X = X[10:]
    local = model.explain_local(X[:10])
    return learned(model, X, model.numbers(X), local, outputs, Texts(local.names, []), "m"), local


@pytest.fixture(scope="module")
def regression(rows):
    """Three runs, whose differences are the spread of effects."""
    model = ResTTNetRegressor(epochs=30, runs=3, random_state=0).fit(*rows)
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
    whole = _relevance(tuple("abcdefghijklmnopqrst"), np.ones((2, 20)), *np.ones((2, 20)), tuple(range(20)), "m")
    assert whole.caption.endswith("interval.")


@pytest.fixture(params=["regression", "classification"])
def page(request):
    return request.getfixturevalue(request.param)


def test_shares_are_those_of_the_library_weighed_by_the_outputs_variance(page, rows):
    model, found, local = page
    terms = top_interactions(model, None, 10, min(model.module_.sites, 4)).terms
    shares = variance_shares(model, rows[0][10:], [term.columns for term in terms], SHARES)
    weights = shares.variance / shares.variance.sum()
    orders = shares.of_orders @ weights
    assert found.order_shares == pytest.approx(orders[1:])
    words = ("comes from single columns", "from pairs", "from triples")
    assert found.orders == ", ".join(f"{percent(orders[k])} {words[k - 1]}" for k in (1, 2, 3))
    carried = shares.of_terms @ weights
    assert [[cell.text for cell in row] for row in found.terms.rows] == [
        [terms[place].label, str(len(terms[place].columns)), percent(carried[place])] for place in np.argsort(-carried)
    ]
    assert (found.terms.numeric, found.terms.notes) == ({1, 2}, ())
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
    assert found.lines == (("y",) if isinstance(model, ResTTNetRegressor) else ("low", "middle", "high"))


def test_an_effect_is_the_change_of_the_average_row(regression, rows):
    model, found, _ = regression
    drawings, X = {drawing.title: drawing.chart for drawing in found.effects}, rows[0][10:]
    curve = effect(model, 1)
    grid, values, band = curve.grids[0], curve.values.numpy()[:, 0], 1.96 * curve.spread.numpy()[:, 0]
    known = ~np.isnan(grid)
    label = f"Effect of b, from {signed(values.min())} to {signed(values.max())} m"
    assert f'aria-label="{label}"' in drawings["b"]
    ends = [0.0, values[~known][0], *(values - band)[known], *(values + band)[known]]
    room = 0.05 * (max(ends) - min(ends))

    def upwards(value):
        return np.interp(value, (min(ends) - room, max(ends) + room), (158.0, 24.0))

    across = np.interp(grid[known], (grid[known].min(), grid[known].max()), (48.0, 330.0))
    assert drawn(drawings["b"], "dashed", "y1") == [f"{upwards(values[~known])[0]:.1f}"]

    def path(xs, ys):
        return "M" + "L".join(f"{x:.1f} {upwards(y):.1f}" for x, y in zip(xs, ys, strict=True))

    assert drawn(drawings["b"], "line s0", "d") == [path(across, values[known])]
    sides = [*(values + band)[known], *(values - band)[known][::-1]]
    assert drawn(drawings["b"], "band s0", "d") == [path([*across, *across[::-1]], sides) + "Z"]
    heights = np.histogram(X.b.dropna(), 24, (grid[known].min(), grid[known].max()))[0]
    assert drawn(drawings["b"], "rows", "height") == [f"{22 * count / heights.max():.1f}" for count in heights]
    levels, bars = effect(model, 2), drawings["kind"].rows
    sizes, bands = levels.values.numpy()[:, 0], 1.96 * levels.spread.numpy()[:, 0]
    assert [bar.end for bar in bars] == pytest.approx(sizes)
    counts = [int((X.kind == bar.name).sum() or X.kind.isna().sum()) for bar in bars]
    assert [bar.remark for bar in bars] == [f"{count} rows" for count in counts]
    assert {bar.name for bar in bars} == {"u", "v", "w", "missing"}
    for bar, size, wide in zip(bars, sizes, bands, strict=True):
        assert (bar.start, *bar.ends) == (0.0, pytest.approx(size - wide), pytest.approx(size + wide))
        assert bar.text == f"{signed(size)} ± {short(wide, 2)}"


def test_bars_of_levels_are_of_the_output_that_moves_most(classification):
    model, found, _ = classification
    chart = next(drawing.chart for drawing in found.effects if drawing.title == "kind")
    curve = effect(model, 2)
    change = curve.on("y").values.numpy()
    most = np.ptp(change, axis=0).argmax()
    assert chart.caption.endswith(f" m of {('low', 'middle', 'high')[most]}")
    assert [bar.end for bar in chart.rows] == pytest.approx(change[:, most])
    levels = f"Effect of kind, from {signed(change.min())} to {signed(change.max())} m of "
    assert chart.caption.startswith(levels)


def test_a_surface_of_a_class_is_what_the_pair_adds_to_both_alone(classification):
    model, found, _ = classification
    surface = found.surfaces[0]
    first, second = (("a", "b", "kind").index(name) for name in surface.title.split(" × "))
    sides = [_side(effect(model, column)) for column in (first, second)]
    one, other = (effect(model, c, grid=side).values.numpy() for c, side in zip((first, second), sides, strict=True))
    pair = effect(model, [first, second], grid=sides)
    link, alone = pair.link, pair.base.numpy() + one[:, None] + other[None]
    values = link(alone + pair.values.numpy()) - link(alone)
    output = next(
        o for o, name in enumerate(("low", "middle", "high")) if f"of the variance of {name};" in surface.caption
    )
    values = values[..., output]
    assert f"at most {signed(values.flat[np.abs(values).argmax()])} m at " in surface.caption
    tips = re.findall(r'data-tip="[^"]*: ([^":]*)"', surface.chart)
    assert tips == [signed(value) for value in values.ravel()]


def test_of_many_outputs_the_six_that_vary_most_have_lines(rows):
    X, y = rows
    model = ResTTNetRegressor(epochs=10, random_state=0).fit(X, np.outer(y, [3.0, 1, 7, 2, 6, 5, 4]))
    found, _ = of(model, X, tuple("tuvwxyz"))
    assert found.lines == tuple("tvwxyz")


def test_a_model_of_one_value_has_no_shares():
    X = pd.DataFrame({"a": np.arange(30.0), "b": np.arange(30.0) % 4})
    model = ResTTNetRegressor(epochs=1, random_state=0).fit(X, np.full((30, 2), 2.0))
    found, _ = of(model, X, ("y0", "y1"))
    assert found.order_shares == (0.0, 0.0)
    assert [row[1].text for row in found.relevance.numbers.rows] == ["0", "0"]


def test_a_surface_shows_what_the_pair_adds_and_where_most(regression):
    model, found, local = regression
    surface = next(one for one in found.surfaces if one.title == "a × kind")
    a = effect(model, 0).grids[0]
    grids = [np.linspace(a.min(), a.max(), 21).tolist(), ["u", "v", "w"]]
    values = effect(model, [0, 2], grid=grids).values.numpy()[..., 0]
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


def test_changes_of_probabilities_are_taken_at_the_average_row(rows):
    model = ResTTNetClassifier(epochs=20, random_state=0).fit(rows[0], rows[1] > 1)
    subject = _Subject(model, None, np.zeros(0), np.array([1.0]), (), [0], lambda _: str, "m")
    scores, start = np.array([[0.5], [-2.0]]), np.array([[0.0], [1.0]])

    def share(score):
        return 1 / (1 + np.exp(-score))

    np.testing.assert_allclose(subject.changed(scores)[:, 0], [share(1.5) - share(1.0), share(-1.0) - share(1.0)])
    moved = subject.changed(scores, start)[:, 0]
    np.testing.assert_allclose(moved, [share(1.5) - share(1.0), share(0.0) - share(2.0)])
