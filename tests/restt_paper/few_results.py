"""A folder with a little of everything that the page of results shows."""

from __future__ import annotations

import json

import restt_paper
from tests.restt_app.pages.conftest import NASTY

MADE = {"commit": "0123456789abcdef", "dirty": False, "command": "restt bench tables", "seed": 0, "device": "a CPU"}


def fill(folder):
    """One table, a league and timings, with a hostile name among them; returns the folder."""
    restt_paper.reproduce("table1", "paper", folder / "paper", "cpu")
    (folder / "tabular").mkdir()
    (folder / "bench").mkdir()
    entries = [("wine", "ResTT", 0.5), ("wine", "boosting", 0.7), (NASTY, "ResTT", 0.9), (NASTY, "boosting", 0.1)]
    league = [{"table": table, "model": model, "r2": value} for table, model, value in entries]
    write(folder / "tabular" / "league.json", {"title": "Tables", "results": league, "provenance": MADE})
    case = {"sites": 4, "feature_dim": 2, "batch": 8, "runs": None, "bond_dim": 5}
    rows = [
        {"implementation": name, "label": name, "role": role, "case": case, "step": timing(value)}
        for name, role, value in (("auto", "ours", 2.0), ("quick", "baseline", 1.0), ("limit", "limit", 0.5))
    ]
    missed = {"what": "a step", "kind": "at most", "bound": 1.0, "unit": "ms", "measured": 2.0, "met": False}
    write(
        folder / "bench" / "main-cpu.json",
        {"suite": "main", "title": "Steps", "axis": None, "rows": rows, "targets": [missed], "provenance": MADE},
    )
    return folder


def write(path, content):
    path.write_text(json.dumps(content), encoding="utf-8")


def timing(value):
    return {"median": value, "lower": 0.9 * value, "upper": 1.1 * value}
