"""The public surface, name by name, and the order of the rooms."""

import ast
import importlib
import pkgutil
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

import restt

HEAVY = ("sklearn", "matplotlib", "triton", "typer", "rich", "pandas", "torch")
APP = ("typer", "rich", "pandas", "pyarrow", "jinja2", "markupsafe", "matplotlib")
ROOT = Path(__file__).resolve().parents[1]

# Everything that may be imported from each public module. A name added or lost is a decision, made here too.
SURFACE = {
    "restt": {
        *(
            "DiagonalTT",
            "ResTT",
            "ResTTClassifier",
            "ResTTForecaster",
            "ResTTNetClassifier",
            "ResTTNetRegressor",
            "ResTTRegressor",
            "ResTTSearchCV",
            "ResTTSequence",
            "ResTTSequenceClassifier",
            "Topology",
            "VolterraRegressor",
        ),
        *("__version__", "load", "warm_up"),
        *(
            "baselines",
            "chain",
            "data",
            "design",
            "explain",
            "features",
            "interop",
            "meanfield",
            "prior",
            "sequences",
            "tasks",
            "testing",
            "train",
        ),
        "workflow",
    },
    "restt.baselines": {"available", "make"},
    "restt.chain": {
        *("BACKENDS", "ChainWeights", "backend", "choose", "contract", "explain", "precision"),
    },
    "restt.data": {"Dataset", "Description", "Stream", "available", "describe", "fetch", "load", "stream"},
    "restt.design": {"next_rows"},
    "restt.explain": {
        *("Distilled", "Effect", "GlobalExplanation", "LocalExplanation", "Polynomial", "Pruned", "SobolIndices"),
        *("Term", "TopInteractions", "Trees", "distil", "effect", "explain_global", "explain_local", "from_trees"),
        *("interaction", "interaction_index"),
        *("order_spectrum", "polynomial", "prune", "shapley_values", "sobol_indices", "top_interactions"),
        *("VarianceShares", "variance_shares"),
    },
    "restt.features": {
        *("Affine", "FeatureMap", "Hat", "Identity", "OneHot", "Polynomial", "RangeWarning", "Trigonometric"),
        *("available", "from_config", "make"),
    },
    "restt.interop": {"export", "load_module", "save_module"},
    "restt.meanfield": {
        *("Profile", "SignalRange", "StabilityWarning", "covariance", "measure", "predict", "signal_range"),
        *("stable_rates", "stable_sigma2"),
    },
    "restt_app.pages": {"model_page"},
    "restt.prior": {
        *("Fitted", "Predictive", "Prior", "Rounding", "Settings", "Site", "Warp", "fit", "hat_map"),
    },
    "restt.sequences": {"ResTTForecaster", "ResTTSequence", "ResTTSequenceClassifier", "VolterraRegressor"},
    "restt.tasks": {"TASK", "Shared", "as_task", "join", "join_outputs", "shared"},
    "restt.testing": {"assert_multilinear"},
    "restt.train": {
        *("Augmentation", "EpochRecord", "Event", "PAPER_RATES", "Penalty", "TrainConfig", "train"),
    },
    "restt.workflow": {
        *("Card", "FittedTable", "Predictions", "Table", "check_table", "compare_tables", "explain_table", "fit_table"),
        *("info", "load_table", "predict_table", "read_table", "write_predictions"),
    },
    "restt_bench": {"NAMES", "Case", "ParityError", "run"},
}


def test_import_is_light():
    code = f"import sys, restt; print([name for name in {HEAVY} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def _without_the_app(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process where none of the extra's packages can be imported."""
    blocked = f"""
import sys
from importlib.machinery import PathFinder

class WithoutTheApp(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.split(".")[0] in {APP} else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = WithoutTheApp
"""
    return subprocess.run([sys.executable, "-c", blocked + code], capture_output=True, text=True)


def test_estimators_work_without_the_app():
    code = """
import numpy as np, restt
x = np.random.default_rng(0).normal(size=(30, 2))
for model, y in ((restt.ResTTRegressor(), x[:, 0]), (restt.ResTTClassifier(), x[:, 0] > 0)):
    assert model.set_params(random_state=0).fit(x, y).score(x, y) > 0.9
assert restt.baselines.make("rr", task="regression").fit(x, x[:, 0]).score(x, x[:, 0]) > 0.9
"""
    done = _without_the_app(code)
    assert done.returncode == 0, done.stderr


def test_the_command_names_the_extra_it_needs():
    done = _without_the_app("import runpy; runpy.run_module('restt', run_name='__main__')")
    assert done.returncode == 1
    needed = "restt_app needs typer, rich, pandas, pyarrow, jinja2: pip install 'restt[app]'"
    assert done.stderr == f"restt: {needed}\n"
    assert needed in _without_the_app("import restt; restt.workflow.fit_table").stderr


@pytest.mark.parametrize("name", SURFACE)
def test_the_public_names_are_these_and_all_load(name):
    module = importlib.import_module(name)
    assert set(module.__all__) == SURFACE[name]
    assert len(module.__all__) == len(set(module.__all__))
    for public in module.__all__:
        assert getattr(module, public) is not None


# Rooms of one file, which imports what it needs.
FILES = ("restt.design", "restt.tasks", "restt.testing")


@pytest.mark.parametrize("name", [name for name in SURFACE if name not in ("restt", *FILES)])
def test_a_room_offers_nothing_beyond_its_public_names(name):
    """What an __init__ defines or brings in: a name that is not public does not belong there."""
    defined = {
        key
        for key, value in vars(importlib.import_module(name)).items()
        if not key.startswith("_") and not isinstance(value, ModuleType) and key != "annotations"
    }
    assert defined <= SURFACE[name]


def test_the_package_offers_lazily_what_it_names():
    assert set(restt.__all__) == SURFACE["restt"] == set(dir(restt))
    for name in SURFACE["restt"]:
        assert getattr(restt, name) is not None


def test_every_public_room_is_pinned():
    rooms = {f"restt.{name}" for name in restt.__all__ if isinstance(getattr(restt, name), ModuleType)}
    assert rooms == {name for name in SURFACE if name.startswith("restt.")}


def test_unknown_name_is_an_attribute_error_that_helps():
    with pytest.raises(AttributeError, match=r"no attribute 'RestT'.*ResTT"):
        restt.RestT  # noqa: B018


def test_every_module_of_the_library_has_its_place_in_the_order():
    """The import linter only looks at what its layers name."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    [contract] = [contract for contract in settings["contracts"] if contract["type"] == "layers"]
    placed = {name for layer in contract["layers"] for name in re.findall(r"[\w.]+", layer)}
    for package in (restt, importlib.import_module("restt_app")):
        assert {f"{package.__name__}.{found.name}" for found in pkgutil.iter_modules(package.__path__)} <= placed
    assert {"restt_baselines", "restt_paper", "restt_bench"} <= placed


def _private_names(tree: ast.Module, library: str) -> set[str]:
    """Names with a leading underscore that a file takes from a library: imported, as an attribute, or in a text."""

    def is_private(name: str) -> bool:
        return any(part.startswith("_") and not part.startswith("__") for part in name.split("."))

    imported, found = {}, set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = {alias.asname or alias.name.split(".")[0]: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names = {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Constant) and re.fullmatch(rf"{library}(\.\w+)+", str(node.value)):
            names = {"": node.value}
        else:
            continue
        own = {name: whole for name, whole in names.items() if whole.split(".")[0] == library}
        imported |= own
        found |= set(filter(is_private, own.values()))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            holder = ast.unparse(node.value)
            if re.fullmatch(r"[\w.]+", holder) and holder.split(".")[0] in imported:
                found.add(f"{holder}.{node.attr}")
    return found


@pytest.mark.parametrize("library", ["torch", "sklearn"])
def test_private_names_of_a_library_stand_in_one_file(library):
    files = {path: ast.parse(path.read_text()) for path in (ROOT / "src").rglob("*.py")}
    users = {path.relative_to(ROOT / "src").as_posix() for path, tree in files.items() if _private_names(tree, library)}
    assert users == {f"restt/_common/compat_{library}.py"}


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("import torch._dynamo.config as config", "torch._dynamo.config"),
        ("from torch.utils._pytree import tree_map", "torch.utils._pytree.tree_map"),
        ("from torch.autograd import forward_ad; forward_ad._current_level", "forward_ad._current_level"),
        ("import torch as t; t._C.f()", "t._C"),
        ('import logging; logging.getLogger("torch._export")', "torch._export"),
        ("import torch; torch.nn.Module.__init__", None),
        ("from torch import nn; class_ = nn; self._own = 1", None),
    ],
)
def test_private_names_are_found(line, found):
    assert _private_names(ast.parse(line), "torch") == ({found} if found else set())


def test_everything_imported_is_declared():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = settings["project"]
    extras = [line for extra in project["optional-dependencies"].values() for line in extra]
    needed, offered = ({re.match(r"[\w-]+", line)[0] for line in lines} for lines in (project["dependencies"], extras))
    # Named otherwise than what is installed, or part of what another one always brings.
    called = {"sklearn": "scikit-learn", "interpret": "interpret-core", "markupsafe": "jinja2", "PIL": "matplotlib"}
    imported = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported.add(node.module.split(".")[0])
    others = imported - sys.stdlib_module_names - {path.name for path in (ROOT / "src").iterdir()}
    assert {called.get(name, name) for name in others} <= needed | offered
    assert "joblib" in needed  # of restt.ResTTSearchCV, which no extra is asked for
    (untyped,) = settings["tool"]["mypy"]["overrides"]
    assert {name.removesuffix(".*") for name in untyped["module"]} <= others
