"""The public surface, name by name, and the order of the rooms."""

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
ROOT = Path(__file__).resolve().parents[1]

# Everything that may be imported from each public module. A name added or lost is a decision, made here too.
SURFACE = {
    "restt": {
        *("ResTT", "ResTTClassifier", "ResTTRegressor", "ResTTSearchCV", "Topology", "VolterraRegressor"),
        *("__version__", "load"),
        *(
            "baselines",
            "chain",
            "data",
            "explain",
            "features",
            "interop",
            "meanfield",
            "pages",
            "prior",
            "testing",
            "train",
        ),
        "workflow",
    },
    "restt.baselines": {"available", "make"},
    "restt.chain": {
        *("BACKENDS", "ChainWeights", "backend", "choose", "contract", "explain", "precision", "recompute"),
    },
    "restt.data": {"Dataset", "Description", "Stream", "available", "describe", "fetch", "load", "read_csv", "stream"},
    "restt.explain": {
        *("Effect", "GlobalExplanation", "LocalExplanation", "Polynomial", "Pruned", "SobolIndices", "Term"),
        *("TopInteractions", "effect", "explain_global", "explain_local", "interaction", "interaction_index"),
        *("order_spectrum", "polynomial", "prune", "shapley_values", "sobol_indices", "top_interactions"),
    },
    "restt.features": {
        *("Affine", "FeatureMap", "Hat", "Identity", "OneHot", "Polynomial", "RangeWarning", "Trigonometric"),
        *("available", "from_config", "make"),
    },
    "restt.interop": {"export", "load_module", "save_module"},
    "restt.meanfield": {
        *("Comparison", "PhaseDiagram", "Profile", "SignalRange", "StabilityWarning", "compare", "covariance"),
        "measure",
        *("phase_diagram", "predict", "signal_range", "site_gradients", "stable_sigma2", "typical_log_decay"),
        "warn_if_unstable",
    },
    "restt.pages": {"model_page"},
    "restt.prior": {
        *("Fitted", "Prior", "Rounding", "Site", "Spread", "Target", "fit", "hat_map", "site_vectors"),
    },
    "restt.testing": {"assert_multilinear"},
    "restt.train": {
        *(
            "Augmentation",
            "CapturedStep",
            "EpochRecord",
            "Event",
            "PAPER_RATES",
            "Penalty",
            "TrainConfig",
            "live_table",
        ),
        *("load_weights", "train", "write_jsonl"),
    },
    "restt.workflow": {
        *("Card", "FittedTable", "Predictions", "Table", "explain_table", "fit_table", "info", "load_table"),
        *("predict_table", "read_table", "write_predictions"),
    },
    "restt_bench": {"NAMES", "Case", "ParityError", "run"},
}


def test_import_is_light():
    code = f"import sys, restt; print([name for name in {HEAVY} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize("name", SURFACE)
def test_the_public_names_are_these_and_all_load(name):
    module = importlib.import_module(name)
    assert set(module.__all__) == SURFACE[name]
    assert len(module.__all__) == len(set(module.__all__))
    for public in module.__all__:
        assert getattr(module, public) is not None


@pytest.mark.parametrize("name", [name for name in SURFACE if name not in ("restt", "restt.testing")])
def test_a_room_offers_nothing_beyond_its_public_names(name):
    """What an __init__ defines or brings in: a name that is not public does not belong there."""
    defined = {
        key
        for key, value in vars(importlib.import_module(name)).items()
        if not key.startswith("_") and not isinstance(value, ModuleType) and key != "annotations"
    }
    assert defined <= SURFACE[name]


def test_the_package_offers_lazily_what_it_names():
    lazy = {*restt._LAZY, *restt._SUBMODULES, "__version__"}
    assert lazy == SURFACE["restt"] == set(dir(restt))


def test_every_public_room_is_pinned():
    rooms = {f"restt.{name}" for name in restt._SUBMODULES}
    assert rooms == {name for name in SURFACE if name.startswith("restt.")}


def test_unknown_name_is_an_attribute_error_that_helps():
    with pytest.raises(AttributeError, match=r"no attribute 'RestT'.*ResTT"):
        restt.RestT  # noqa: B018


def test_every_module_of_the_library_has_its_place_in_the_order():
    """The import linter only looks at what its layers name."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    [contract] = [contract for contract in settings["contracts"] if contract["type"] == "layers"]
    placed = {name for layer in contract["layers"] for name in re.findall(r"[\w.]+", layer)}
    there = {f"restt.{found.name}" for found in pkgutil.iter_modules(restt.__path__)}
    assert there <= placed
    assert {"restt_paper", "restt_bench"} <= placed
