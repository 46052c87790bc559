"""Every loader, given damaged files, answers with a value or with one of our errors: no other exception, no runaway of
time or memory, nothing executed.

``RESTT_FUZZ`` is the number of mutants for each loader; ``make fuzz`` makes ten thousand.
"""

from __future__ import annotations

import functools
import json
import os
import random
import re
import resource
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import is_classifier

import restt
import restt_paper
from restt import ResTT, ResTTNetClassifier, ResTTNetRegressor, ResTTRegressor, data, workflow
from restt._common.tensorfile import open_file, write_file
from restt.interop.storage import MODULE
from restt.train import TrainConfig, train
from restt.train.checkpoint import CHECKPOINT
from restt_paper.experiments import Cell, Store, read_file
from tests.fuzz.mutations import damaged_bytes, damaged_plain
from tests.hasty import hasty_solvers

MUTANTS = int(os.environ.get("RESTT_FUZZ", "60"))
OURS = (ValueError, TypeError, OSError)
# Far beyond what any of these small files needs, far below what a crafted size could ask for.
SECONDS, BYTES = 20.0, 400 * 2**20


@dataclass(frozen=True)
class Loader:
    """How to write one good file, and how to read what became of it."""

    write: Callable[[Path], Path]
    read: Callable[[Path], Any]
    # Damages the good file at the first path into the second; by default its bytes.
    damage: Callable[[Path, Path, random.Random], None] | None = None
    # The share of mutants that is refused at least. Values that no rule forbids may stay: a flipped digit of a CSV is
    # another number.
    refused: float = 0.4


def _bytes(good: Path, bad: Path, rng: random.Random) -> None:
    bad.write_bytes(damaged_bytes(good.read_bytes(), rng))


def _sealed(kind: Any) -> Callable[[Path, Path, random.Random], None]:
    """Plain values changed under a checksum that is right: what only malice or another program writes."""

    @functools.cache
    def whole(good: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any], dict[str, str]]:
        opened = open_file(good, kind)
        # All else of the header stays: it is the values behind the checks that are to be reached.
        about = {name: text for name, text in opened.header.items() if name not in ("format", kind.entry, "sha256")}
        return *opened.load(), about

    def damage(good: Path, bad: Path, rng: random.Random) -> None:
        tensors, plain, about = whole(good)
        if rng.random() < 0.3:
            name = rng.choice(sorted(tensors))
            tensors = {**tensors, name: tensors[name].flatten()[: rng.randint(0, 3)]}
        changed = damaged_plain(plain, rng)
        write_file(bad, kind, tensors, changed if isinstance(changed, dict) else {}, about=about)

    return damage


def _values(good: Path, bad: Path, rng: random.Random) -> None:
    """JSON that is whole, with other values in it."""
    bad.write_text(json.dumps(damaged_plain(json.loads(good.read_text()), rng)))


ASKED = pd.DataFrame({"a": [0.5, 7.0], "b": [0.1, -3.0], "kind": ["x", "y"]})


def _model(folder: Path, kind: Any = ResTTRegressor, **parameters: Any) -> Path:
    rng = np.random.default_rng(0)
    x = pd.DataFrame({"a": rng.random(24), "b": rng.random(24), "kind": list("xyz") * 8})
    x.loc[3, "b"] = np.nan
    model = kind(**parameters, random_state=0).fit(x, np.rint(3 * x["a"]) if is_classifier(kind()) else x["a"] ** 2)
    return model.save(folder / "model.safetensors")


def _use(path: Path) -> Any:
    """All that a model is asked for. What can be loaded can be used: an error then is one that loading has missed."""
    loaded = restt.load(path)
    if isinstance(loaded, ResTT):  # where what makes it an estimator is gone
        return loaded
    asked = ASKED.set_axis(getattr(loaded, "feature_names_in_", ASKED.columns), axis=1)
    try:
        found = [loaded.predict(asked), repr(loaded)]
        if is_classifier(loaded):
            found.append(loaded.predict_proba(asked))
        elif isinstance(loaded, ResTTRegressor):
            found += [loaded.predict(asked, return_std=True), loaded.predict_interval(asked), str(loaded.prior_)]
        if loaded.site_covariances_ is not None and loaded.site_means_ is not None:
            found.append(loaded.feature_importances_)
        return found
    except Exception as error:
        raise AssertionError(f"a model that was loaded raises {type(error).__name__}: {error}") from error


def _trained(folder: Path) -> Path:
    _train_in(folder / "run", epochs=1)
    return folder / "run" / "last.safetensors"


def _train_in(folder: Path, epochs: int) -> list[Any]:
    x = torch.linspace(0, 1, 72).view(12, 3, 2)
    config = TrainConfig(epochs=epochs, seed=0)
    return list(train(_small(), x, x[:, 0, :1], config=config, checkpoint_dir=folder))


def _small() -> ResTT:
    return ResTT(sites=3, feature_dim=2, bond_dim=2, outputs=1)


def _csv(folder: Path) -> Path:
    rows = "\n".join(f"{k},{k * 0.5},{'ab'[k % 2]}" for k in range(12))
    (folder / "table.csv").write_text(f'x,"y, with comma",kind\n{rows}\n')
    return folder / "table.csv"


ROWS = pd.DataFrame(
    {
        "x": [k * 0.5 for k in range(40)],
        "day": [f"2024-01-{k % 28 + 1:02d}" for k in range(40)],
        "kind": list("abcd") * 10,
    }
)


def _parquet(folder: Path) -> Path:
    pytest.importorskip("pyarrow")
    ROWS.to_parquet(folder / "table.parquet")
    return folder / "table.parquet"


def _read_stream(path: Path) -> Any:
    rows = data.stream(path, target="x")
    return [rows.to_config(), *rows.frames()]


@functools.cache
def _fitted() -> workflow.FittedTable:
    return workflow.fit_table(ROWS.assign(y=[k % 7 for k in range(40)]), "y", task="regression")


def _card(folder: Path) -> Path:
    _fitted().save(folder / "model")
    return folder / "model" / "card.json"


def _read_folder(path: Path) -> Any:
    """The damaged card beside the good model."""
    good = path.parent.parent / "good" / "model"
    for name in ("model.safetensors", "README.md"):
        if not (path.parent / name).exists():
            (path.parent / name).write_bytes((good / name).read_bytes())
    return workflow.predict_table(path.parent, ROWS, interval=None)


def _cell(store: Path) -> tuple[Store, Cell]:
    made, cell = Store(store), Cell("table1", "small", {"profile": "quick", "rows": 3})
    made.compute(cell, lambda _: {"final": [1.0, 2.0]})
    return made, cell


def _results(folder: Path) -> Path:
    store, cell = _cell(folder / "quick")
    return store.path(cell)


def _counts(folder: Path) -> Path:
    (written,) = restt_paper.reproduce("table1", "quick", folder, "cpu")
    return written


def _show(path: Path) -> Any:
    """The table of the file, at the place where its results are looked for."""
    place = path.parent / "shown" / "table1" / path.name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(path.read_bytes())
    return restt_paper.tables_of("table1", "quick", path.parent / "shown")


LOADERS = {
    "model": Loader(_model, restt.load),
    "model, sealed": Loader(_model, _use, _sealed(MODULE)),
    "trained model, sealed": Loader(
        functools.partial(_model, kind=ResTTNetRegressor, epochs=2, bond_dim=2, feature_map="trigonometric"),
        _use,
        _sealed(MODULE),
    ),
    "classifier, sealed": Loader(functools.partial(_model, kind=ResTTNetClassifier, epochs=2), _use, _sealed(MODULE)),
    "checkpoint": Loader(_trained, lambda path: _train_in(path.parent, epochs=2)),
    "checkpoint, sealed": Loader(_trained, lambda path: _train_in(path.parent, epochs=2), _sealed(CHECKPOINT)),
    "csv of one's own": Loader(_csv, workflow.read_table, refused=0.2),
    "parquet": Loader(_parquet, workflow.read_table),
    "parquet, streamed": Loader(_parquet, _read_stream),
    "model card": Loader(_card, _read_folder),
    "model card, values": Loader(_card, _read_folder, _values, refused=0.05),
    "results": Loader(_results, read_file),
    "results, values": Loader(_results, read_file, _values, refused=0.1),
    "results, shown": Loader(_counts, _show, _values, refused=0.1),
}


@pytest.mark.parametrize("name", LOADERS)
def test_a_damaged_file_gives_a_value_or_our_error(name, tmp_path, monkeypatch, record_property):
    loader = LOADERS[name]
    (tmp_path / "good").mkdir()
    (tmp_path / "bad").mkdir()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with hasty_solvers():
            good = loader.write(tmp_path / "good")
        assert loader.read(good) is not None or name.startswith("checkpoint")
    executed = []
    for function in ("system", "popen", "execv"):
        monkeypatch.setattr(os, function, lambda *given: executed.append(given))
    bad = tmp_path / "bad" / good.name
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    reasons = Counter()
    for seed in range(MUTANTS):
        rng = random.Random(f"{name}/{seed}")
        began, reason = time.process_time(), "none needed"
        try:
            (loader.damage or _bytes)(good, bad, rng)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                loader.read(bad)
        except OURS as error:
            reason = str(error)
            # Without paths and numbers, which differ from one to the next.
            reasons[re.sub(r"\S*/\S*|\d+", "", reason)] += 1
        except Exception as error:
            pytest.fail(f"mutant {seed} of {name} raised {type(error).__name__}: {error}")
        assert reason, f"mutant {seed} of {name} was refused without a reason"
        assert time.process_time() - began < SECONDS, f"mutant {seed} of {name} ran away"
    record_property("files", MUTANTS)
    record_property("refused", reasons.total())
    record_property("reasons", len(reasons))
    grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    assert grown < BYTES, f"{name} took {grown} bytes"
    assert not executed
    assert reasons.total() > MUTANTS * loader.refused
    # One reason for nearly all would mean that a single check keeps the others from being reached.
    assert reasons.most_common(1)[0][1] < 0.9 * reasons.total() or name in ("model", "checkpoint")
