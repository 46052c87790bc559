"""Serve a model without restt: export it to ONNX and predict raw rows, text and all, with onnxruntime alone.

    pip install restt[export] pandas
    python examples/serve_onnx.py

The file takes one input per column, as the columns stand in the table, and says in its metadata which columns, levels
and classes it knows. ``Server`` needs onnxruntime and numpy, and neither restt nor torch nor pandas.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

# What each type of an ONNX input is in numpy.
DTYPES = {"tensor(string)": object, "tensor(double)": np.float64, "tensor(float)": np.float32}


class Server:
    """Answers rows given as plain dicts, as a web service would get them."""

    def __init__(self, path: str | Path) -> None:
        self.session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        notes = self.session.get_modelmeta().custom_metadata_map
        self.columns, self.classes = json.loads(notes["columns"]), json.loads(notes["classes"])
        self.types = {column.name: DTYPES[column.type] for column in self.session.get_inputs()}

    def predict(self, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """For each row the label and the probability of every class; a value that is not there is missing."""
        table = {
            name: np.array([self._value(row.get(name), dtype) for row in rows], dtype=dtype)
            for name, dtype in self.types.items()
        }
        probabilities, labels = self.session.run(["output", "label"], table)
        return [
            {"label": label, "probabilities": dict(zip(self.classes, row, strict=True))}
            for label, row in zip(labels.tolist(), probabilities.tolist(), strict=True)
        ]

    @staticmethod
    def _value(value: Any, dtype: Any) -> Any:
        if value is None:
            return "" if dtype is object else np.nan
        return value


def export_model(path: Path, rows: int, seed: int) -> tuple[Any, Any]:
    """A classifier of a made table with text, numbers and missing values, exported to ``path``, and the table."""
    import pandas as pd

    from restt.estimators import ResTTNetClassifier

    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "district": rng.choice(["harbour", "hill", "old town"], rows),
            "area": rng.gamma(6.0, 15.0, rows),
            "balcony": rng.random(rows) < 0.4,
        }
    )
    worth = table["area"] / 60 + (table["district"] == "hill") * (1 + table["balcony"]) + 0.2 * rng.normal(size=rows)
    table.loc[rng.random(rows) < 0.1, "area"] = np.nan
    model = ResTTNetClassifier(epochs=60, random_state=seed).fit(table, np.where(worth > 2, "dear", "cheap"))
    model.export(path)
    return model, table


def compare(rows: int, seed: int) -> float:
    """The largest difference between the served probabilities and ``predict_proba``."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "flats.onnx"
        model, table = export_model(path, rows, seed)
        server = Server(path)
        for column in server.columns:
            print(f"{column['name']}: {column['kind']}", column.get("levels", ""))
        given = [
            {name: None if value != value else value for name, value in row.items()}
            for row in table.to_dict(orient="records")
        ]
        answers = server.predict(given)
        print(f"{given[0]} -> {answers[0]}")
        served = np.array([[answer["probabilities"][name] for name in model.classes_] for answer in answers])
        assert [answer["label"] for answer in answers] == model.predict(table).tolist()
        return float(np.abs(served - model.predict_proba(table)).max())


def main(arguments: list[str] | None = None) -> None:
    """Export, serve, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    print(f"largest difference from predict_proba: {compare(given.rows, given.seed):.1e}")


if __name__ == "__main__":
    main()
