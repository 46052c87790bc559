"""Small models with the names and values that break pages, and a real browser."""

from __future__ import annotations

import shutil
from importlib.resources import files

import numpy as np
import pandas as pd
import pytest

from restt import ResTTNetClassifier, ResTTRegressor
from restt_app.pages import model_page
from tests.hasty import hasty_solvers

NASTY = '</script><script>alert("x")</script>'
QUOTES = "a \"b\" 'c' & <i>ü\u2028</i>"
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


@pytest.fixture(scope="session")
def table():
    """Numbers, categories and missing values under hostile names, and a y that needs an interaction."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({NASTY: rng.random(90), QUOTES: rng.normal(size=90), "kind": rng.choice(["<b>", "blue"], 90)})
    X["holes"] = np.where(rng.random(90) < 0.2, np.nan, rng.random(90))
    y = 3 * X[NASTY] * X[QUOTES] + (X["kind"] == "blue") + 0.1 * rng.normal(size=90)
    return X, y.to_numpy()


@pytest.fixture(scope="session")
def regressor(table):
    X, y = table
    with hasty_solvers():
        return ResTTRegressor(random_state=0).fit(X, y)


@pytest.fixture(scope="session")
def classifier(table):
    X, y = table
    return ResTTNetClassifier(epochs=15, random_state=0).fit(X, np.digitize(y, [0.0, 1.0]))


@pytest.fixture(scope="session")
def card():
    return {
        "task": "regression",
        "target": f"price {NASTY}",
        "source": {"file": f"{QUOTES}.csv", "sha256": "0" * 64, "rows": 90, "columns": 5, "rows_used": 90},
        "columns": [{"name": NASTY, "kind": "number", "missing": 0, "range": [0.0, 1.0], "used": True, "note": QUOTES}],
        "held_out": {"method": "5 folds", "rows": 90, "metrics": {}},
        "scores": [
            {"model": "linear", "metric": "r2", "value": 0.4, "low": 0.3, "high": 0.5},
            {"model": "ResTT", "metric": "r2", "value": 0.9, "low": 0.8, "high": 0.95},
            {"model": "boosting", "metric": "r2", "value": 0.7, "low": None, "high": None},
        ],
        "calibration": {
            "coverage": [{"expected": 0.9, "observed": 0.85, "width": 2.0}],
            "rows": [{"predicted": 1.0, "observed": 1.1, "low": 0.5, "high": 1.5}] * 4
            + [{"predicted": 2.0, "observed": 5.0, "low": 1.5, "high": 2.5}],
            "fifths": [
                {"low": 0.0, "high": 1.0, "rows": 18, "expected": 0.9, "observed": 0.7, "width": 1.0},
                {"low": 1.0, "high": 2.0, "rows": 18, "expected": 0.9, "observed": 0.9, "width": 3.0},
            ],
            "groups": [{"column": "kind", "values": "blue", "rows": 40, "loss": 4.0, "others": 1.0, "bias": -0.5}],
        },
        "settings": {"seed": 0},
        "versions": {"python": "3", "restt": "0"},
        "created": "2026-01-01T00:00:00+00:00",
        "seconds": 3.2,
        "notes": [f"a note with {NASTY}"],
    }


@pytest.fixture(scope="session")
def page(regressor, table, card):
    return model_page(regressor, *table, card=card, rows=20)


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """A headless Chromium; what needs one is skipped where none is installed."""
    binary = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("no Chromium with chromedriver on this machine: install chromium and chromium-driver")
    webdriver = pytest.importorskip("selenium.webdriver")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('browser')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    opened = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    opened.set_script_timeout(300)  # of a busy machine
    yield opened
    opened.quit()


@pytest.fixture(scope="session")
def axe():
    """The checker of contrast, names and roles, as a script."""
    pytest.importorskip("axe_core_python")
    return files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def threshold_page(table):
    """Two classes, with a confusion matrix at a threshold that can be moved."""
    X, y = table
    labels = np.where(y > 1, "yes", "no")
    model = ResTTNetClassifier(epochs=15, random_state=0).fit(X, labels)
    counts = {"negative": [3] * 20 + [0] * 81, "positive": [0] * 70 + [2] * 31}
    card = {"task": "classification", "target": "ill", "classes": ["no", "yes"], "calibration": {"confusion": counts}}
    return model_page(model, X, labels, card=card, rows=10)
