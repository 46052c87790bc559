"""Table I: parameters by bond dimension, in the paper's counting and in Algorithm 1's."""

from __future__ import annotations

from typing import Any

from restt.module import ResTT
from restt_paper.cells import Cell
from restt_paper.counting import paper_count
from restt_paper.paper import paper_numbers
from restt_paper.store import Store
from restt_paper.tables import NOT_YET, Table

COUNTINGS = ("paper_counting", "algorithm_counting", "module")
TITLE = "Table I: number of parameters"
MODELS = {"TT": "plain", "ResTT": "residual"}


def cells(profile: str) -> list[Cell]:
    """One cell; counting takes no time, so both profiles count the paper's sizes."""
    setup = paper_numbers()["common_setup"]
    settings = {
        "profile": profile,
        "bond_dims": paper_numbers()["table1_parameters"]["r"],
        "sites": setup["sites"],
        "feature_dim": setup["feature_dim"],
        "outputs": setup["outputs"],
    }
    return [Cell("table1", "parameters", settings)]


def compute(cell: Cell, store: Store) -> dict[str, Any]:
    """Both countings and the numbers a module really trains, by model, in the order of ``bond_dims``."""
    sizes = {name: cell.settings[name] for name in ("sites", "feature_dim", "outputs")}
    found: dict[str, Any] = {}
    for model, topology in MODELS.items():
        counts = [paper_count(r, topology, **sizes) for r in cell.settings["bond_dims"]]
        modules = [ResTT(bond_dim=r, topology=topology, **sizes) for r in cell.settings["bond_dims"]]
        found[model] = {
            "paper_counting": [count.paper for count in counts],
            "algorithm_counting": [count.algorithm for count in counts],
            "module": [module.num_parameters() for module in modules],
            "why": counts[0].why,
        }
    return found


def tables(store: Store, profile: str) -> list[Table]:
    """Ours beside the paper's, model by model."""
    (cell,) = cells(profile)
    found = store.load(cell)
    printed = paper_numbers()["table1_parameters"]
    rows, notes = [], []
    for model in MODELS:
        for number, r in enumerate(printed["r"]):
            ours = [NOT_YET if found is None else str(found["result"][model][name][number]) for name in COUNTINGS]
            rows.append((model, str(r), str(printed[model][number]), *ours))
        if found is not None:
            notes.append(f"{model}: {found['result'][model]['why']}.")
    columns = ("model", "r", "paper", "the paper's counting", "Algorithm 1's counting", "trained by restt.ResTT")
    return [Table(TITLE, columns, tuple(rows), tuple(notes))]
