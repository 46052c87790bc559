"""The demo: train on bundled data, compare with linear models on the same splits, show and save what was found."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

import restt
from restt._common.drawing import require_matplotlib, save_figure
from restt._common.files import write_json_atomic
from restt._common.provenance import provenance
from restt.train import Penalty, TrainConfig, train

if TYPE_CHECKING:
    from rich.progress import Progress

SPLITS = 5  # random 70/30 splits; every model sees the same ones, and all splits of a model train side by side
TEST_SHARE = 0.3
METRIC_NAMES = {"accuracy": "accuracy", "r2": "R²"}


@dataclass(frozen=True)
class Task:
    """One data set, how its columns become sites, and how ResTT is trained on it."""

    dataset: str
    metric: str
    title: str
    feature_map: restt.features.FeatureMap
    bond_dim: int
    config: TrainConfig


@dataclass
class Outcome:
    """What one model reached on one task, one score per split."""

    task: str
    metric: str
    model: str
    scores: list[float]
    seconds: float
    parameters: int
    curve: list[float] = field(default_factory=list)  # mean score after each epoch


def tasks(seed: int) -> list[Task]:
    """The two tasks: images as 64 sites of the paper's map, a small table as 10 sites of hat functions."""
    return [
        Task(
            "digits",
            "accuracy",
            "digits: 1797 images of 8×8 pixels, test accuracy",
            restt.features.Trigonometric(),
            12,
            TrainConfig(epochs=40, batch_size=64, lr=3e-3, schedule="cosine", loss="mse", seed=seed),
        ),
        Task(
            "diabetes",
            "r2",
            "diabetes: 442 patients, 10 columns, test R²",
            restt.features.Hat(knots=4, placement="quantile"),
            6,
            TrainConfig(
                epochs=150,
                batch_size=None,
                lr=1e-2,
                schedule="cosine",
                penalty=Penalty(chain=3e-1, linear=3e-2, head=3e-2),
                seed=seed,
            ),
        ),
    ]


def run(output: str | Path, seed: int = 0, epochs: int | None = None) -> list[Outcome]:
    """Train and compare everything; writes ``demo.json`` and, with matplotlib, ``demo.png`` into ``output``."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    origin = provenance(seed=seed)
    console = Console()
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[score]}"), TimeRemainingColumn())
    outcomes: list[Outcome] = []
    with Progress(*columns, console=console) as progress:
        for task in tasks(seed):
            data = restt.data.load(task.dataset)
            train_rows, test_rows = _splits(len(data.x), seed)
            outcomes.append(_linear_model(task, data, train_rows, test_rows))
            for topology in ("plain", "residual"):
                outcomes.append(_tensor_train(task, topology, data, train_rows, test_rows, seed, epochs, progress))
    console.print(_table(outcomes))
    numbers = {**origin, "results": [vars(outcome) for outcome in outcomes]}
    console.print(f"saved {write_json_atomic(folder / 'demo.json', numbers)}", markup=False)
    try:
        console.print(f"saved {_figure(outcomes, folder / 'demo.png')}", markup=False)
    except ImportError as missing:  # a picture is extra; the numbers are saved
        console.print(f"no picture: {missing}", markup=False)
    return outcomes


def _splits(rows: int, seed: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    from sklearn.model_selection import ShuffleSplit

    splitter = ShuffleSplit(SPLITS, test_size=TEST_SHARE, random_state=seed)
    pairs = list(splitter.split(np.zeros(rows)))
    return [torch.as_tensor(a) for a, _ in pairs], [torch.as_tensor(b) for _, b in pairs]


def _linear_model(task: Task, data: Any, train_rows: list[torch.Tensor], test_rows: list[torch.Tensor]) -> Outcome:
    from sklearn.linear_model import LinearRegression, LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    classes = task.metric == "accuracy"
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000) if classes else LinearRegression())
    x, y = data.x.double().numpy(), data.y.numpy()
    began = time.perf_counter()
    scores = []
    parameters = 0
    for fold, held in zip(train_rows, test_rows, strict=True):
        model.fit(x[fold], y[fold])
        scores.append(float(model.score(x[held], y[held])))
        parameters = model[-1].coef_.size + np.size(model[-1].intercept_)
    name = "logistic regression" if classes else "linear regression"
    return Outcome(task.dataset, task.metric, name, scores, time.perf_counter() - began, parameters)


def _tensor_train(
    task: Task,
    topology: str,
    data: Any,
    train_rows: list[torch.Tensor],
    test_rows: list[torch.Tensor],
    seed: int,
    epochs: int | None,
    progress: Progress,
) -> Outcome:
    config = task.config if epochs is None else replace(task.config, epochs=epochs)
    y = data.y
    if task.metric == "r2":
        y = ((y - y.mean()) / y.std()).float()  # R² does not depend on the scale, so this leaks nothing
    x = task.feature_map.fit(data.x).transform(data.x).float()
    outputs = int(y.max()) + 1 if task.metric == "accuracy" else 1
    module = restt.ResTT(
        sites=x.shape[1],
        feature_dim=task.feature_map.widths,
        bond_dim=task.bond_dim,
        outputs=outputs,
        topology=topology,
        second_moment=task.feature_map.second_moment,
        bias=True,
        runs=SPLITS,
    )
    module.reset_parameters(seed=seed)
    name = "ResTT" if topology == "residual" else "plain tensor train"
    bar = progress.add_task(f"{task.dataset}: {name}", total=cast(int, config.epochs), score="")
    began = time.perf_counter()
    curve: list[float] = []
    scores: tuple[float, ...] = ()
    for record in train(module, x, y, config=config, subset=train_rows, validation_subset=test_rows):
        scores = record.validation[task.metric]
        curve.append(float(np.mean(scores)))
        progress.update(bar, advance=1, score=f"{METRIC_NAMES[task.metric]} {curve[-1]:.3f}")
    seconds = time.perf_counter() - began
    return Outcome(task.dataset, task.metric, name, list(scores), seconds, module.num_parameters(), curve)


def _table(outcomes: list[Outcome]) -> Any:
    from rich.table import Table

    table = Table(title=f"mean ± std over {SPLITS} random {1 - TEST_SHARE:.0%}/{TEST_SHARE:.0%} splits, last epoch")
    for heading in ("data", "model", "on the test rows", "parameters", f"seconds for all {SPLITS}"):
        table.add_column(heading, justify="left" if heading in ("data", "model") else "right")
    for outcome in outcomes:
        metric = METRIC_NAMES[outcome.metric]
        score = f"{metric} {np.mean(outcome.scores):.3f} ± {np.std(outcome.scores):.3f}"
        table.add_row(outcome.task, outcome.model, score, str(outcome.parameters), f"{outcome.seconds:.1f}")
    return table


def _figure(outcomes: list[Outcome], path: Path) -> Path:
    plt = require_matplotlib()
    titles = {task.dataset: task.title for task in tasks(0)}
    figure, panels = plt.subplots(1, len(titles), figsize=(11, 4), layout="constrained")
    for axes, (name, title) in zip(panels, titles.items(), strict=True):
        best = max(float(np.mean(outcome.scores)) for outcome in outcomes if outcome.task == name)
        for outcome in (outcome for outcome in outcomes if outcome.task == name):
            mean = float(np.mean(outcome.scores))
            label = f"{outcome.model} ({mean:.3f})"
            if outcome.curve:
                axes.plot(range(1, len(outcome.curve) + 1), outcome.curve, label=label)
            else:
                axes.axhline(mean, color="gray", linestyle="--", label=label)
        axes.set(title=title, xlabel="epoch", ylim=(min(0.0, best - 0.6), min(1.0, best + 0.1)))
        axes.legend(loc="lower right")
    saved = save_figure(figure, path)
    plt.close(figure)
    return saved
