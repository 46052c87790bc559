"""Table I: parameters by bond dimension, in the paper's counting and in Algorithm 1's."""

from __future__ import annotations

from dataclasses import dataclass

from restt._common.errors import check_choice, check_int
from restt.module import ResTT
from restt_paper.experiments import Cell, Context, Experiment, Result, Settings, Store
from restt_paper.table import NOT_YET, Table, paper_numbers

COUNTINGS = ("paper_counting", "algorithm_counting", "module")
TITLE = "Table I: number of parameters"
MODELS = {"TT": "plain", "ResTT": "residual"}
WHY = {
    "plain": "Table I gives the last core W(N,1) no output leg",
    "residual": "Table I gives the last core W(N,1) and the last entry W(N,2) no output leg (as if for O = 1 and width "
    "r) and leaves W(N,3) out",
}


@dataclass(frozen=True)
class PaperCount:
    """The paper's count, Algorithm 1's, and why they differ."""

    paper: int
    algorithm: int
    why: str


def paper_count(
    bond_dim: int, topology: str = "residual", *, sites: int = 196, feature_dim: int = 2, outputs: int = 10
) -> PaperCount:
    """Trainable numbers by the paper's Table I and by Algorithm 1.

    >>> count = paper_count(10, "plain")
    >>> count.paper, count.algorithm
    (38840, 39020)
    """
    why = WHY[check_choice("topology", topology, WHY)]
    r, n = check_int("bond_dim", bond_dim, minimum=1), check_int("sites", sites, minimum=2)
    i, o = check_int("feature_dim", feature_dim, minimum=1), check_int("outputs", outputs, minimum=1)
    chain = i * r + (n - 2) * i * r * r
    paper, algorithm = chain + i * r, chain + i * r * o
    if topology == "plain":
        return PaperCount(paper, algorithm, why)
    return PaperCount(paper + (n - 1) * i * r, algorithm + (n - 2) * i * r + i * o + r * o, why)


def cells(profile: str) -> list[Cell]:
    """One cell; counting takes no time, so both profiles count the paper's sizes."""
    setup = {name: paper_numbers()["common_setup"][name] for name in ("sites", "feature_dim", "outputs")}
    settings = {"profile": profile, "bond_dims": paper_numbers()["table1_parameters"]["r"], **setup}
    return [Cell("table1", "parameters", settings)]


def compute(settings: Settings, context: Context) -> Result:
    """Both countings and the numbers a module really trains, by model, in the order of ``bond_dims``."""
    sizes = {name: settings[name] for name in ("sites", "feature_dim", "outputs")}
    result = {}
    for model, topology in MODELS.items():
        counts = [paper_count(r, topology, **sizes) for r in settings["bond_dims"]]
        modules = [ResTT(bond_dim=r, topology=topology, **sizes) for r in settings["bond_dims"]]
        result[model] = {
            "paper_counting": [count.paper for count in counts],
            "algorithm_counting": [count.algorithm for count in counts],
            "module": [module.num_parameters() for module in modules],
            "why": counts[0].why,
        }
    return result


def tables(store: Store, profile: str) -> list[Table]:
    """Ours beside the paper's, model by model."""
    content = store.load(cells(profile)[0])
    printed = paper_numbers()["table1_parameters"]
    rows = []
    for place, r in enumerate(printed["r"]):
        entries = []
        for model in MODELS:
            ours = [NOT_YET if content is None else str(content["result"][model][name][place]) for name in COUNTINGS]
            entries += [str(printed[model][place]), *ours]
        rows.append((str(r), *entries))
    notes = () if content is None else tuple(f"{model}: {content['result'][model]['why']}." for model in MODELS)
    counted = ("paper", "the paper's counting", "Algorithm 1's counting", "trained by restt.ResTT")
    columns = ("r", *(f"{model}, {what}" for model in MODELS for what in counted))
    return [Table(TITLE, columns, tuple(rows), notes)]


EXPERIMENT = Experiment("table1", TITLE, cells, compute, tables)
