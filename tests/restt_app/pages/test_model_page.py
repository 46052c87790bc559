"""The page of a model, read as text: what is in it, what is escaped, what is left out."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import warnings
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import polars as pl
import pytest

from restt import ResTTNetRegressor, ResTTRegressor
from restt.explain import top_interactions, variance_shares
from restt_app.pages import model_page
from restt_app.pages.charts import surface
from restt_app.pages.learned import SHARES
from restt_app.pages.numbers import percent, short, signed
from tests.restt_app.pages.conftest import NASTY


class Reader(HTMLParser):
    """Tags and the texts of scripts, as a browser would find them."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.scripts, self.headings, self.inside = [], [], [], None
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag == "script":
            self.scripts.append((dict(attributes), ""))
        self.inside = tag

    def handle_endtag(self, tag):
        self.inside = None

    def handle_data(self, data):
        if self.inside == "script":
            self.scripts[-1] = (self.scripts[-1][0], self.scripts[-1][1] + data)
        if self.inside in ("h1", "h2", "h3"):
            self.headings.append(data)


def explorer(page):
    return next(json.loads(text) for about, text in Reader(page).scripts if about.get("type") == "application/json")


def test_names_of_columns_stay_text(page):
    read = Reader(page)
    assert [about.get("type") for about, _ in read.scripts] == ["application/json", None]
    assert f"What predicts price {NASTY}" in read.headings
    assert NASTY in explorer(page)["names"]


def test_nothing_is_fetched_and_only_the_own_script_may_run(page):
    read = Reader(page)
    assert not [tag for tag, about in read.tags if "src" in about or tag in ("link", "iframe", "object")]
    assert not re.search(r"url\(|@import|https?://(?!www\.w3\.org)", page)
    policy = next(about["content"] for tag, about in read.tags if about.get("http-equiv"))
    script = next(text for about, text in read.scripts if not about)
    allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{allowed}'" in policy
    assert "default-src 'none'" in policy


def test_what_the_card_says_is_on_the_page(page):
    text = re.sub(r"<[^>]+>", " ", page)
    for said in ("R²", "0.8 to 0.95", "5 folds", "5 points fewer", "1 observed values lie outside", "3.2 s", "0" * 64):
        assert said in text
    assert page.index(">ResTT<") < page.index(">boosting<") < page.index(">linear<")
    assert "kind is blue" in text
    assert "mean: " not in text  # the simplest baseline of this card is boosting


def test_the_sections_are_in_the_order_a_reader_asks(page):
    places = [
        page.index(f'<section id="{name}"') for name in ("scores", "matters", "interactions", "explorer", "trust")
    ]
    assert places == sorted(places)
    assert places[-1] < page.index('<section id="data"') < page.index('<section id="made"')


def test_curves_are_the_models_own_predictions(page, regressor, table):
    X, _ = table
    found = explorer(page)
    row = 7
    place = found["row"][row] - 1
    for column in found["columns"]:
        name = found["names"][column["column"]]
        for point, steps in zip(column["grid"], column["steps"][row][0], strict=True):
            changed = X.iloc[[place]].copy()
            changed[name] = [point]
            wanted = regressor.predict(changed)[0]
            assert found["predicted"][row][0] + steps * found["unit"] == pytest.approx(wanted, abs=2 * found["unit"])


def test_contributions_sum_to_the_prediction_in_the_units_of_y(page, regressor, table):
    X, y = table
    found = explorer(page)
    for row, place in enumerate(np.array(found["row"]) - 1):
        wanted = regressor.predict(X.iloc[[place]])[0]
        assert found["base"][0] + sum(found["added"][row][0]) == pytest.approx(wanted, abs=1e-3)
        assert found["observed"][row] == pytest.approx(y[place])
        low, high = found["interval"][row]
        assert low < wanted < high


def test_contributions_to_probabilities_sum_to_them(classifier, table):
    found = classifier.explain_local(table[0][:20]).on()
    np.testing.assert_allclose(
        found.base + found.values.sum(axis=1), classifier.predict_proba(table[0][:20]), atol=1e-6
    )
    np.testing.assert_allclose(found.values.sum(axis=2), 0, atol=1e-6)


def test_bars_and_colours_are_those_of_the_contributions(page, regressor, table):
    local = regressor.explain_local(table[0].iloc[np.array(explorer(page)["row"]) - 1]).on()
    sizes = np.abs(local.values[:, :, 0])
    for mean, error in zip(sizes.mean(axis=0), 1.96 * sizes.std(axis=0) / np.sqrt(len(sizes)), strict=True):
        assert f"{short(mean, 3)} ± {short(error, 2)}" in page
    assert signed(-2 * local.predictions.std()) in page  # the end of the colours


def test_terms_have_the_posterior_errors_of_their_shares(page, regressor, table):
    terms = top_interactions(regressor, None, 10, 4).terms
    shares = variance_shares(regressor, table[0], [term.columns for term in terms], SHARES)
    assert shares.term_errors is not None
    for share, std in zip(shares.of_terms[:, 0], shares.term_errors.std[:, 0], strict=True):
        assert f"{percent(share)} ± {percent(1.96 * std)}" in page


def test_a_surface_names_its_axes_and_its_scale():
    drawn = surface(("across", "up"), (("a", "b"), ("c", "d", "e")), np.arange(6.0).reshape(2, 3), 8.0, "both", "y")
    texts = {text: float(x) for x, text in re.findall(r'<text[^>]* x="([\d.]+)"[^>]*>([^<]*)</text>', drawn)}
    assert texts["up"] < texts["a"] < texts["across"] < texts["b"]
    assert texts["−8"] < texts["added to y"] < texts["+8"]


def test_without_a_card_the_page_says_what_is_missing(regressor, table):
    page = model_page(regressor, table[0], rows=5)
    assert "The model card has no scores" in page
    assert "No group of held-out rows" in page
    assert len(explorer(page)["row"]) == 5
    assert explorer(page)["observed"] is None


def test_classes_have_probabilities(classifier, table):
    X, y = table
    matrix = [[5, 1, 0], [2, 7, 0], [0, 0, 3]]
    bins = [{"predicted": 0.5, "observed": 0.4, "rows": 10}]
    card = {"target": "band", "classes": [0, 1, 2], "calibration": {"bins": bins, "confusion": {"matrix": matrix}}}
    page = model_page(classifier, X, np.digitize(y, [0.0, 1.0]), card=card, rows=8)
    found = explorer(page)
    assert found["outputs"] == ["band = 0", "band = 1", "band = 2"]
    assert np.allclose(np.sum(found["predicted"], axis=1), 1, atol=1e-4)
    assert "Can the probabilities be believed?" in page
    assert "83.3 %" in page  # of the first class are right
    assert found["labels"] == ["0", "1", "2"]
    assert 'class="line s2"' in page


@pytest.mark.parametrize("kind", ["array", "polars"])
def test_other_kinds_of_tables(kind):
    rng = np.random.default_rng(1)
    X, y = rng.random((40, 3)), rng.random(40)
    given = X if kind == "array" else pl.DataFrame({f"c{n}": X[:, n] for n in range(3)}).with_columns(word=pl.lit("a"))
    model = ResTTNetRegressor(epochs=5, random_state=0).fit(given, y)
    found = explorer(model_page(model, given, y, rows=4))
    assert len(found["columns"]) == 3
    assert found["interval"] is None


def test_the_explorer_is_bounded(regressor, table, monkeypatch):
    monkeypatch.setattr("restt_app.pages.explorer.NUMBERS", 1000)
    assert len(explorer(model_page(regressor, *table))["row"]) == 13


def test_a_model_that_says_one_thing():
    X = np.random.default_rng(0).random((30, 2))
    y = np.full(30, 2.0)
    page = model_page(ResTTRegressor(random_state=0).fit(X, y), X, y, rows=3)
    assert "It predicts the same for every row." in page
    assert "the model is additive" in page
    assert explorer(page)["predicted"] == [[2.0]] * 3


def test_bad_arguments(regressor, table):
    X, y = table
    with pytest.raises(TypeError, match="model must be a fitted"):
        model_page(object(), X)
    with pytest.raises(ValueError, match="y must have one entry per row of X, 90, got 3"):
        model_page(regressor, X, y[:3])
    with pytest.raises(ValueError, match="rows must be at least 1, got 0"):
        model_page(regressor, X, rows=0)


def test_dates_are_shown_as_dates(regressor):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"day": 19000.0 + np.arange(40), "day weekday": np.arange(40.0) % 7, "a": rng.random(40)})
    model = ResTTNetRegressor(epochs=20, random_state=0).fit(X, np.arange(40.0))
    page = model_page(model, X, card={"target": "y", "columns": [{"name": "day", "kind": "date"}]}, rows=4)
    found = explorer(page)
    assert found["values"][0] == ["2022-01-08", "Mon", pytest.approx(found["values"][0][2])]
    day = next(column for column in found["columns"] if column["column"] == 0)
    assert day["texts"][0] == "2022-01-08"
    assert ">2022-0" in page  # a tick of the curve


def test_a_thousand_rows_and_three_hundred_columns_stay_small():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.random((1000, 300)), columns=[f"列 {k}" for k in range(300)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one epoch is not enough
        model = ResTTNetRegressor(epochs=1, bond_dim=2, random_state=0).fit(X, X["列 0"])
    page = model_page(model, X, X["列 0"].to_numpy())
    assert len(page.encode()) < 1_500_000
