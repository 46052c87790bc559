"""The tour: a made table from a file to models, a comparison, predictions and pages, as one's own would go."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pandas as pd

from restt._common.errors import check_folder
from restt._common.files import write_bytes_atomic, write_json_atomic
from restt._common.provenance import provenance
from restt_app.workflow import Card, Predictions, explain_table, fit_table, read_table, shown, write_predictions

ROWS = 600


def run(output: str | Path, seed: int = 0, rows: int = ROWS) -> Card:
    """Fit a table of bike rentals, compare, predict and explain; all that is made lies in ``output``.

    ``rentals.csv``; ``model/``, ``predictions.csv`` and ``page.html`` of how many bikes are rented; ``sold-out/`` and
    ``sold-out.html`` of whether all are; ``demo.json``, the scores with where they come from. What an earlier tour left
    there is replaced.

    Returns
    -------
    Card
        Of the first model.
    """
    origin = provenance(seed=seed)
    folder, began = check_folder("output", output), time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    say = shown.console(stderr=False)

    def tell(text: str) -> None:
        say.print(text, markup=False, highlight=False, soft_wrap=True)

    data = write_bytes_atomic(folder / "rentals.csv", rentals(rows).to_csv(index=False).encode())
    table = read_table(data, drop=["sold_out"])
    tell(f"1. A table: bikes rented in {table.rows} hours, made up so that the truth is known ({data})")
    say.print(shown.columns_table(table.columns.values(), "rented"))

    tell("2. A model of it, and how it does on hours it has not seen")
    with shown.progress(say) as progress:
        fitted = fit_table(table, "rented", seed=seed, effort="quick", progress=progress)
    say.print(shown.scores_table(fitted.card))
    model = fitted.save(folder / "model", force=True)
    tell(f"   restt fit {data} --target rented --drop sold_out --effort quick -o {model}")

    predictions = write_predictions(Predictions(model, data), folder / "predictions.csv", force=True)
    tell("3. What it predicts, with intervals that should hold 9 of 10 new hours")
    tell(f"   restt predict {model} {data} -o {predictions}")
    page = explain_table(fitted, data, folder / "page.html", force=True)
    tell("4. Why: working days and free days have other hours, which no column shows alone. Open the page in a browser")
    tell(f"   restt explain {model} {data} -o {page}")

    tell("5. Classes: will all bikes be out?")
    with shown.progress(say) as progress:
        classes = fit_table(data, "sold_out", drop=["rented"], seed=seed, effort="quick", progress=progress)
    say.print(shown.scores_table(classes.card))
    other = classes.save(folder / "sold-out", force=True)
    page = explain_table(classes, data, folder / "sold-out.html", force=True)
    tell(f"   restt fit {data} --target sold_out --drop rented --effort quick -o {other}; its page is {page}")

    results = [{"target": card.target, "scores": card.scores} for card in (fitted.card, classes.card)]
    saved = write_json_atomic(folder / "demo.json", {**origin, "results": results})
    tell(f"The numbers are in {saved}; all of it took {time.monotonic() - began:.0f} s")
    return fitted.card


def rentals(rows: int = ROWS) -> pd.DataFrame:
    """Made hours of a bike rental. On working days bikes go in the morning and evening, else around noon.

    >>> rentals(2).columns.tolist()
    ['date', 'hour', 'day', 'weather', 'temperature', 'wind', 'rented', 'sold_out']
    """
    rng = np.random.default_rng(20)
    date = pd.Timestamp("2025-03-01") + pd.to_timedelta(np.sort(rng.integers(0, 240, rows)), unit="D")
    hour = rng.integers(6, 23, rows)
    free = (date.day_of_week >= 5) | (rng.random(rows) < 0.1)
    weather = rng.choice(["clear", "cloudy", "rain"], rows, p=[0.5, 0.35, 0.15])
    temperature = (12 + 9 * np.sin((date.day_of_year - 105) / 58) + 4 * rng.normal(size=rows)).to_numpy()
    commuting = 90 * np.exp(-(((hour - 8) / 1.5) ** 2)) + 110 * np.exp(-(((hour - 17.5) / 2) ** 2))
    leisure = 120 * np.exp(-(((hour - 14) / 3.5) ** 2)) * np.clip(temperature / 15, 0.1, 1.6)
    mean = 25 + np.where(free, leisure, commuting + 0.15 * leisure)
    mean *= np.where(weather == "rain", np.where(free, 0.3, 0.6), 1.0)
    rented = np.round(mean * np.exp(0.12 * rng.normal(size=rows))).astype(int)
    return pd.DataFrame(
        {
            "date": date.strftime("%Y-%m-%d"),
            "hour": hour,
            "day": np.where(free, "free", "working"),
            "weather": weather,
            "temperature": np.round(temperature, 1),
            "wind": np.round(rng.gamma(2.0, 4.0, rows), 1),
            "rented": rented,
            "sold_out": np.where(rented + rng.normal(0, 8, rows) > 125, "yes", "no"),
        }
    )
