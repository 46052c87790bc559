"""The tour: a bundled table from a file to a model, a comparison, predictions and a page, as one's own would go."""

from __future__ import annotations

import time
from pathlib import Path

from restt._common.errors import check_folder
from restt._common.files import write_bytes_atomic, write_json_atomic
from restt._common.provenance import provenance
from restt_app.workflow import Card, Predictions, explain_table, fit_table, read_table, shown, write_predictions

TARGET = "progression"
# The bundled table calls its six measurements of the blood s1 … s6.
NAMES = {
    "s1": "cholesterol",
    "s2": "ldl",
    "s3": "hdl",
    "s4": "cholesterol/hdl",
    "s5": "log triglycerides",
    "s6": "glucose",
}


def run(output: str | Path, seed: int = 0, rows: int | None = None) -> Card:
    """Fit the diabetes table, compare, predict and explain; all that is made lies in ``output``. Returns the card.

    ``diabetes.csv``, ``model/``, ``predictions.csv``, ``page.html`` and
    ``demo.json``, the scores with where they come from. What an earlier tour left there is replaced. ``rows`` takes
    only that many, the first.
    """
    origin = provenance(seed=seed)
    folder, began = check_folder("output", output), time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    say = shown.console(stderr=False)

    def tell(text: str) -> None:
        say.print(text, markup=False, highlight=False, soft_wrap=True)

    data = write_bytes_atomic(folder / "diabetes.csv", bundled_csv(rows))
    table = read_table(data, category=["sex"])
    tell(f"1. A table: {table.rows} patients, and how far their diabetes went within a year ({data})")
    say.print(shown.columns_table(table.columns.values(), TARGET))

    tell("2. A model of it, and how it does on patients it has not seen")
    with shown.progress(say) as progress:
        fitted = fit_table(table, TARGET, seed=seed, progress=progress)
    say.print(shown.scores_table(fitted.card))
    model = fitted.save(folder / "model", force=True)
    tell(f"   restt fit {data} --target {TARGET} --category sex -o {model}")

    predictions = write_predictions(Predictions(model, data), folder / "predictions.csv", force=True)
    tell("3. What it predicts, with intervals that should hold 9 of 10 new patients")
    tell(f"   restt predict {model} {data} -o {predictions}")
    page = explain_table(fitted, data, folder / "page.html", force=True)
    tell("4. Why it predicts what it does, on a page to open in a browser")
    tell(f"   restt explain {model} {data} -o {page}")

    saved = write_json_atomic(folder / "demo.json", {**origin, "results": fitted.card.scores})
    tell(f"The numbers are in {saved}; all of it took {time.monotonic() - began:.0f} s")
    return fitted.card


def bundled_csv(rows: int | None = None) -> bytes:
    """The diabetes table that scikit-learn carries, in its own units, as CSV.

    >>> print(bundled_csv(2).decode())  # doctest: +ELLIPSIS
    age,sex,bmi,bp,cholesterol,...,progression
    59.0,2,32.1,101.0,157.0,...,151.0
    48.0,1,21.6,87.0,183.0,...,75.0
    <BLANKLINE>
    """
    from sklearn.datasets import load_diabetes

    bunch = load_diabetes(as_frame=True, scaled=False)
    frame = bunch.frame.rename(columns={**NAMES, "target": TARGET}).iloc[:rows]
    frame["sex"] = frame["sex"].astype(int)  # 1 and 2; the source does not say which is which
    return frame.to_csv(index=False).encode()
