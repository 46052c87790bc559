"""Table III: seconds of inference, backpropagation and convergence by bond dimension.

Times are wall clock with the device's queue waited for. Kernels are compiled before any clock starts: every timed call
is made untimed first, and a throw-away model trains an epoch before each timed training. Convergence is judged on rows
held out of the training data; the paper watches the test set, and that time is recorded beside it.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import mse_loss, one_hot

from restt import data
from restt._common.errors import check_choice
from restt.data.dataset import Dataset
from restt.features import Trigonometric
from restt.module import ResTT
from restt.train import TrainConfig, train
from restt.train.config import PAPER_WEIGHT_DECAY
from restt_bench.timing import measure, synchronizer
from restt_paper.experiments import Cell, Context, Experiment, Result, Settings, Store
from restt_paper.images.training import matmul_precision
from restt_paper.table import NO_NUMBER, NOT_YET, Table, fixed, paper_numbers
from restt_paper.verdict import RULE, Claim, Comparison, Outcome, Target, claims_table, judged, larger

TITLE = "Table III: inference, backpropagation and convergence"
CLAIMS = (
    "Inference and backpropagation take less than 1 second",
    "Both take longer for larger r",
    "Convergence takes less time for larger r, unless r is too large",
)
BATCH, MNIST_ROWS = 512, 60_000
TARGET_SECONDS, TARGET_FROM, TARGET_DEVICE = 5.0, 30, "H200"


@dataclass(frozen=True)
class Sizes:
    """Sizes of the study."""

    bond_dims: tuple[int, ...]
    rounds: int  # timed calls of each kind
    budget: float  # seconds they may take
    rows: int  # training images, held-out ones included
    held_out: int
    images: int  # of the long inference
    bar: float  # percent
    batch_size: int  # of the training
    max_epochs: int
    seeds: tuple[int, ...]
    lr: float = 1e-3  # of the paper's three
    sigma2: float = 0.01
    weight_decay: float = PAPER_WEIGHT_DECAY
    matmul_precision: str = "high"  # as torch.set_float32_matmul_precision names it


SIZES = {
    "paper": Sizes((20, 30, 40, 50, 100), 200, 5.0, MNIST_ROWS, 5_000, 10_000, 98.0, BATCH, 100, (0, 1, 2)),
    "quick": Sizes((10, 20), 20, 1.0, 3_000, 600, 1_000, 90.0, 50, 20, (0,)),
}


def cells(profile: str) -> list[Cell]:
    """One cell per bond dimension."""
    settings = asdict(SIZES[check_choice("profile", profile, SIZES)])
    bond_dims = settings.pop("bond_dims")
    return [
        Cell("table3", f"mnist-restt-r{r}", {"profile": profile, "bond_dim": r, "batch": BATCH, **settings})
        for r in bond_dims
    ]


def compute(settings: Settings, context: Context) -> Result:
    """Milliseconds of calls with their quartiles, and one convergence per seed."""
    images = data.load("mnist", fraction=settings["rows"] / MNIST_ROWS)
    names = {"max_epochs": "epochs", "batch_size": "batch_size", "lr": "lr", "weight_decay": "weight_decay"}
    training = {name: settings[setting] for setting, name in names.items()}
    with matmul_precision(settings["matmul_precision"], context.device):
        convergence = []
        for seed in settings["seeds"]:
            make = partial(_module, settings, images, seed, context.device)
            config = TrainConfig(rates="uniform", loss="mse", seed=seed, **training)
            times = time_to_accuracy(
                make, images, config, bar=settings["bar"], held_out=settings["held_out"], seed=seed
            )
            convergence.append({"seed": seed, **times})
        return {"milliseconds": _calls(settings, images, context.device), "convergence": convergence}


def _module(settings: Settings, images: Dataset, seed: int, device: str) -> ResTT:
    sizes = images.x_train.shape[1], 2, settings["bond_dim"], len(images.classes)
    module = ResTT(*sizes, init="paper", sigma2=settings["sigma2"], device=device)
    module.reset_parameters(seed=seed)
    return module


def time_to_accuracy(
    make: Callable[[], ResTT], images: Dataset, config: TrainConfig, *, bar: float, held_out: int, seed: int
) -> dict[str, Any]:
    """Train until the accuracy has reached ``bar`` percent on held-out training rows and on the test set.

    The clock runs inside the training loop only, evaluation of the held-out rows included; it stands still while the
    test images are scored. ``make`` gives an untrained module of one run, ``seed`` chooses the ``held_out`` rows.
    Returns seconds and accuracies by epoch, and ``by_validation`` and ``by_test``: epoch, seconds and test accuracy
    when the bar was first reached, None where it was not.
    """
    order = torch.randperm(len(images.x_train), generator=torch.Generator().manual_seed(seed))
    x, y = images.x_train[order[held_out:]], images.y_train[order[held_out:]]
    validation = images.x_train[order[:held_out]], images.y_train[order[:held_out]]
    feature_map = Trigonometric()
    fit = partial(train, x=x, y=y, config=config, validation=validation, feature_map=feature_map)
    next(fit(make()))

    module = make()
    device = module.first.device
    x_test, y_test = feature_map(images.x_test.to(device)), images.y_test.to(device)
    seconds: list[float] = []
    on_validation: list[float] = []
    on_test: list[float] = []
    began, spent = time.perf_counter(), 0.0
    for record in fit(module):
        spent += time.perf_counter() - began
        seconds.append(round(spent, 6))
        on_validation.append(round(100 * record.validation["accuracy"][0], 3))
        with torch.no_grad():
            hits = module(x_test).argmax(-1) == y_test
        on_test.append(round(100 * hits.double().mean().item(), 3))
        if max(on_validation) >= bar and max(on_test) >= bar:
            break
        began = time.perf_counter()
    return {
        "seconds_by_epoch": seconds,
        "validation_accuracy_by_epoch": on_validation,
        "test_accuracy_by_epoch": on_test,
        "by_validation": _first_above(bar, on_validation, seconds, on_test),
        "by_test": _first_above(bar, on_test, seconds, on_test),
    }


def _first_above(
    bar: float, accuracy: Sequence[float], seconds: Sequence[float], on_test: Sequence[float]
) -> dict[str, float | None]:
    """The first epoch whose accuracy reached the bar, with its time and the test accuracy then.

    >>> _first_above(98.0, [97.0, 98.5], [1.0, 2.0], [96.0, 97.9])
    {'epochs': 2, 'seconds': 2.0, 'test_accuracy': 97.9}
    >>> _first_above(98.0, [97.0], [1.0], [96.0])
    {'epochs': None, 'seconds': None, 'test_accuracy': None}
    """
    for epoch, value in enumerate(accuracy):
        if value >= bar:
            return {"epochs": epoch + 1, "seconds": seconds[epoch], "test_accuracy": on_test[epoch]}
    return {"epochs": None, "seconds": None, "test_accuracy": None}


def _calls(settings: Settings, images: Dataset, device: str) -> dict[str, Any]:
    """Inference and backward of one batch, and inference of many images from their pixels."""
    module, feature_map = _module(settings, images, 0, device), Trigonometric()
    pixels = images.x_test[: settings["images"]].to(device)  # (B, N)
    x = feature_map(images.x_train[: settings["batch"]].to(device))  # (B, N, I)
    target = one_hot(images.y_train[: settings["batch"]], len(images.classes)).float().to(device)  # (B, O)

    def loss() -> Tensor:
        return mse_loss(module(x), target)

    # A graph can be walked once, so the backward pass is the difference between the last two.
    calls: dict[str, Callable[[], object]] = {
        "inference": torch.no_grad()(lambda: module(x)),
        "inference_of_images": torch.no_grad()(lambda: module(feature_map(pixels)).argmax(-1)),
        "forward": loss,
        "forward_and_backward": lambda: loss().backward(),
    }
    limits = {"rounds": settings["rounds"], "budget": settings["budget"], "synchronize": synchronizer(device)}
    # Each on its own: in turns they would meet one another's caches.
    timed = {name: measure({name: call}, **limits)[name].as_milliseconds() for name, call in calls.items()}
    backward = timed["forward_and_backward"]["median"] - timed["forward"]["median"]
    return {**timed, "backward": {"median": round(backward, 6)}}


def tables(store: Store, profile: str) -> list[Table]:
    """Calls, then convergence, beside the paper's seconds."""
    chosen = SIZES[profile]
    files = {cell.settings["bond_dim"]: store.load(cell) for cell in cells(profile)}
    devices = sorted({content["provenance"]["device"] for content in files.values() if content is not None})
    notes = (
        *(f"Ours on {device}." for device in devices),
        f"The paper's on {paper_numbers()['table3_seconds']['hardware']}. Kernels are compiled before the clock "
        "starts; backpropagation is the median of forward and backward less that of forward.",
        f"Training: Adam at {chosen.lr:g}, batches of {chosen.batch_size}, {chosen.held_out:,} of {chosen.rows:,} "
        f"training images held out for validation; median and range over {len(chosen.seeds)} seed(s).",
    )
    title = f"Table III: milliseconds of a batch of {BATCH}, and seconds of training on MNIST until {chosen.bar:g} %"
    return [Table.of(title, [_row(r, content, chosen.images) for r, content in files.items()], notes)]


def _row(r: int, content: Mapping[str, Any] | None, images: int) -> dict[str, str]:
    printed = paper_numbers()["table3_seconds"]

    def paper(name: str, unit: float) -> str:
        return fixed(printed[name][printed["r"].index(r)] / unit, 0) if r in printed["r"] else NO_NUMBER

    def call(name: str) -> str:
        return NOT_YET if content is None else fixed(content["result"]["milliseconds"][name]["median"], 3)

    def run(by: str, name: str, digits: int) -> str:
        if content is None:
            return NOT_YET
        return _median_and_range([run[by][name] for run in content["result"]["convergence"]], digits)

    return {
        "r": str(r),
        "inference, paper": paper("inference", 1e-3),
        "inference": call("inference"),
        "backpropagation, paper": paper("backpropagation", 1e-3),
        "backpropagation": call("backward"),
        f"inference of {images:,} images": call("inference_of_images"),
        "training until 98 % on test, paper": paper("convergence_to_98_percent", 1.0),
        "until the bar on validation rows": run("by_validation", "seconds", 2),
        "epochs": run("by_validation", "epochs", 0),
        "test accuracy then": run("by_validation", "test_accuracy", 2),
        "until the bar on test": run("by_test", "seconds", 2),
    }


def _median_and_range(values: Sequence[float | None], digits: int) -> str:
    """The median and, of more than one, the range; or how many never reached the bar.

    >>> _median_and_range([3.0, 1.0, 2.0], 1), _median_and_range([1.0], 1), _median_and_range([1.0, None], 1)
    ('2.0 (1.0 … 3.0)', '1.0', 'not reached by 1 of 2')
    """
    kept = [value for value in values if value is not None]
    if len(kept) < len(values):
        return f"not reached by {len(values) - len(kept)} of {len(values)}"
    text = fixed(statistics.median(kept), digits)
    return text if len(kept) == 1 else f"{text} ({fixed(min(kept), digits)} … {fixed(max(kept), digits)})"


def claims(store: Store) -> Table:
    """The paper's claims, once all bond dimensions are measured."""
    files = {cell.settings["bond_dim"]: store.load(cell) for cell in cells("paper")}
    results = {r: file["result"] for r, file in sorted(files.items()) if file is not None}
    if len(results) < len(files):
        return claims_table("Table III", [Claim(text) for text in CLAIMS])
    calls = {
        name: [result["milliseconds"][key]["median"] for result in results.values()]
        for name, key in (("inference", "inference"), ("backpropagation", "backward"))
    }
    slowest = max(max(values) for values in calls.values())
    rising = all(first < second for values in calls.values() for first, second in itertools.pairwise(values))
    listed = "; ".join(f"{name} {', '.join(fixed(value, 3) for value in values)} ms" for name, values in calls.items())
    checked = [
        Claim(CLAIMS[0], f"at most {fixed(slowest, 3)} ms", slowest < 1000),
        Claim(CLAIMS[1], f"{listed} at r = {', '.join(map(str, results))}", rising),
        _faster_convergence(results),
    ]
    return claims_table("Table III", checked, (RULE,))


def _faster_convergence(results: Mapping[int, Mapping[str, Any]]) -> Claim:
    """From each r to the next larger one, up to the r that converges fastest."""
    seconds = {r: _seconds(result) for r, result in results.items()}
    medians = {r: statistics.median(values) for r, values in seconds.items()}
    fastest = min(medians, key=lambda r: medians[r])
    measured = f"{', '.join(fixed(m) for m in medians.values())} s at r = {', '.join(map(str, medians))}"
    steps = [(small, large) for small, large in itertools.pairwise(seconds) if large <= fastest]
    if not steps:
        return Claim(CLAIMS[2], measured, False)
    comparisons = [Comparison(f"r = {low} to {high}", _falls(seconds[low], seconds[high])) for low, high in steps]
    claim = judged(CLAIMS[2], comparisons)
    return Claim(CLAIMS[2], f"{measured}; it falls: {claim.measured}", claim.holds)


def _falls(before: Sequence[float], after: Sequence[float]) -> Outcome:
    if math.isinf(max(*before, *after)):  # a run that never reached the bar has no time to compare
        return "yes" if max(after) < math.inf else "no"
    return larger(before, after)


def _seconds(result: Mapping[str, Any]) -> list[float]:
    """Seconds of convergence on validation rows, seed by seed; infinite where the bar was not reached."""
    seconds = [run["by_validation"]["seconds"] for run in result["convergence"]]
    return [math.inf if value is None else value for value in seconds]


def slowest_convergence(store: Store) -> float | None:
    """The longest convergence on validation rows of any seed at any r from 30 on; None until all ran on an H200."""
    slowest = 0.0
    for cell in cells("paper"):
        if cell.settings["bond_dim"] >= TARGET_FROM:
            content = store.load(cell)
            if content is None or TARGET_DEVICE not in content["provenance"]["device"]:
                return None
            slowest = max(slowest, *_seconds(content["result"]))
    return slowest


TARGETS = (
    Target(
        f"MNIST, training until 98 % on validation rows, slowest seed of any r ≥ {TARGET_FROM}, {TARGET_DEVICE}",
        "226 to 430 s (GTX 1080 Ti)",
        "at most",
        TARGET_SECONDS,
        slowest_convergence,
        unit="s",
    ),
)
EXPERIMENT = Experiment("table3", TITLE, cells, compute, tables, claims, targets=TARGETS)
