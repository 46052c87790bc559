"""Table III: seconds of inference, backpropagation and convergence by bond dimension.

Times are wall clock with the device's queue waited for. Kernels are compiled before any clock starts: every timed call
is made untimed first, and a throw-away model trains an epoch before each timed training. Convergence is judged on rows
held out of the training data; the paper watches the test set, and that time is recorded beside it.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Sequence
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
from restt.train import TrainConfig
from restt.train.config import PAPER_WEIGHT_DECAY
from restt_bench.timing import measure, synchronizer
from restt_paper.engine.experiment import Context, Experiment, Result, Settings
from restt_paper.engine.store import Cell, Store
from restt_paper.engine.table import NOT_YET, Table, fixed
from restt_paper.engine.verdict import RULE, Claim, Comparison, Outcome, Target, claims_table, judged, larger
from restt_paper.images.convergence import time_to_accuracy
from restt_paper.images.training import matmul_precision
from restt_paper.paper_numbers import paper_numbers

TITLE = "Table III: inference, backpropagation and convergence"
CLAIMS = "Table III: the paper's claims"
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
    with matmul_precision(settings["matmul_precision"], context.device):
        convergence = [
            {"seed": seed, **_convergence(settings, images, seed, context.device)} for seed in settings["seeds"]
        ]
        return {"milliseconds": _calls(settings, images, context.device), "convergence": convergence}


def _convergence(settings: Settings, images: Dataset, seed: int, device: str) -> dict[str, Any]:
    config = TrainConfig(
        rates="uniform",
        epochs=settings["max_epochs"],
        batch_size=settings["batch_size"],
        lr=settings["lr"],
        weight_decay=settings["weight_decay"],
        loss="mse",
        seed=seed,
    )
    return time_to_accuracy(
        partial(_module, settings, images, seed, device),
        images,
        config,
        bar=settings["bar"],
        held_out=settings["held_out"],
        seed=seed,
    )


def _module(settings: Settings, images: Dataset, seed: int, device: str) -> ResTT:
    sizes = images.x_train.shape[1], 2, settings["bond_dim"], len(images.classes)
    module = ResTT(*sizes, init="paper", sigma2=settings["sigma2"], device=device)
    module.reset_parameters(seed=seed)
    return module


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
    timed = {
        # Each on its own: in turns they would meet one another's caches.
        name: measure(
            {name: call}, rounds=settings["rounds"], budget=settings["budget"], synchronize=synchronizer(device)
        )[name].as_milliseconds()
        for name, call in calls.items()
    }
    backward = timed["forward_and_backward"]["median"] - timed["forward"]["median"]
    return {**timed, "backward": {"median": round(backward, 6)}}


def tables(store: Store, profile: str) -> list[Table]:
    """Calls, then convergence, beside the paper's seconds."""
    chosen = SIZES[profile]
    files = {cell.settings["bond_dim"]: store.load(cell) for cell in cells(profile)}
    devices = sorted({content["provenance"]["device"] for content in files.values() if content is not None})
    table = Table(
        f"Table III: milliseconds of a batch of {BATCH}, and seconds of training on MNIST until {chosen.bar:g} %",
        (
            "r",
            "inference, paper",
            "inference",
            "backpropagation, paper",
            "backpropagation",
            f"inference of {chosen.images:,} images",
            "training until 98 % on test, paper",
            "until the bar on validation rows",
            "epochs",
            "test accuracy then",
            "until the bar on test",
        ),
        tuple((str(r), *_call_row(r, content), *_convergence_row(r, content)) for r, content in files.items()),
        (
            *(f"Ours on {device}." for device in devices),
            f"The paper's on {paper_numbers()['table3_seconds']['hardware']}. Kernels are compiled before the clock "
            "starts; backpropagation is the median of forward and backward less that of forward.",
            f"Training: Adam at {chosen.lr:g}, batches of {chosen.batch_size}, {chosen.held_out:,} of {chosen.rows:,} "
            f"training images held out for validation; median and range over {len(chosen.seeds)} seed(s).",
        ),
    )
    # The clock of a few cores says nothing about the paper's.
    return [table, *([_claims(files)] if profile == "paper" else [])]


def _claims(files: dict[int, dict[str, Any] | None]) -> Table:
    texts = (
        "Inference and backpropagation take less than 1 second",
        "Both take longer for larger r",
        "Convergence takes less time for larger r, unless r is too large",
    )
    found = {r: file["result"] for r, file in sorted(files.items()) if file is not None}
    if len(found) < len(files):
        return claims_table(CLAIMS, [Claim(text) for text in texts])
    calls = {
        name: [result["milliseconds"][key]["median"] for result in found.values()]
        for name, key in (("inference", "inference"), ("backpropagation", "backward"))
    }
    slowest = max(max(values) for values in calls.values())
    rs = ", ".join(f"{r}" for r in found)
    return claims_table(
        CLAIMS,
        [
            Claim(texts[0], f"at most {fixed(slowest, 3)} ms", slowest < 1000),
            Claim(
                texts[1],
                "; ".join(f"{name} {_listed(values, 3)} ms" for name, values in calls.items()) + f" at r = {rs}",
                all(_rising(values) for values in calls.values()),
            ),
            _less_time(texts[2], found),
        ],
        (RULE,),
    )


def _less_time(text: str, found: dict[int, dict[str, Any]]) -> Claim:
    """From each r to the next larger one, up to the r that converges fastest."""
    seconds = {
        r: [_or_never(run["by_validation"]["seconds"]) for run in result["convergence"]] for r, result in found.items()
    }
    medians = {r: statistics.median(values) for r, values in seconds.items()}
    fastest = min(medians, key=lambda r: medians[r])
    told = f"{_listed(list(medians.values()), 2)} s at r = {', '.join(f'{r}' for r in medians)}"
    steps = [(small, large) for small, large in itertools.pairwise(seconds) if large <= fastest]
    if not steps:
        return Claim(text, told, False)
    claim = judged(
        text, [Comparison(f"r = {low} to {high}", _falls(seconds[low], seconds[high])) for low, high in steps]
    )
    return Claim(text, f"{told}; it falls: {claim.measured}", claim.holds)


def _falls(before: Sequence[float], after: Sequence[float]) -> Outcome:
    if math.isinf(max(*before, *after)):  # a run that never got there has no time to compare
        return "yes" if max(after) < math.inf else "no"
    return larger(before, after)


def _or_never(seconds: float | None) -> float:
    return math.inf if seconds is None else seconds


def _listed(values: Sequence[float], digits: int) -> str:
    return ", ".join(fixed(value, digits) for value in values)


def _rising(values: Sequence[float]) -> bool:
    return all(first < second for first, second in itertools.pairwise(values))


def _paper(r: int, name: str) -> float | None:
    printed = paper_numbers()["table3_seconds"]
    return printed[name][printed["r"].index(r)] if r in printed["r"] else None


def _call_row(r: int, content: dict[str, Any] | None) -> tuple[str, ...]:
    timed = None if content is None else content["result"]["milliseconds"]

    def paper(name: str) -> str:
        seconds = _paper(r, name)
        return "–" if seconds is None else fixed(1e3 * seconds, 0)

    def ours(name: str) -> str:
        return NOT_YET if timed is None else fixed(timed[name]["median"], 3)

    batch = paper("inference"), ours("inference"), paper("backpropagation"), ours("backward")
    return *batch, ours("inference_of_images")


def _convergence_row(r: int, content: dict[str, Any] | None) -> tuple[str, ...]:
    seconds = _paper(r, "convergence_to_98_percent")
    paper = "–" if seconds is None else fixed(seconds, 0)
    if content is None:
        return paper, *[NOT_YET] * 4
    runs = content["result"]["convergence"]

    def over_seeds(by: str, name: str, digits: int) -> str:
        return _median_and_range([run[by][name] for run in runs], digits)

    return (
        paper,
        over_seeds("by_validation", "seconds", 2),
        over_seeds("by_validation", "epochs", 0),
        over_seeds("by_validation", "test_accuracy", 2),
        over_seeds("by_test", "seconds", 2),
    )


def _median_and_range(values: Sequence[float | None], digits: int) -> str:
    """The median and, of more than one, the range; or how many never got there.

    >>> _median_and_range([3.0, 1.0, 2.0], 1), _median_and_range([1.0], 1), _median_and_range([1.0, None], 1)
    ('2.0 (1.0 … 3.0)', '1.0', 'not reached by 1 of 2')
    """
    kept = [value for value in values if value is not None]
    if len(kept) < len(values):
        return f"not reached by {len(values) - len(kept)} of {len(values)}"
    text = fixed(statistics.median(kept), digits)
    return text if len(kept) == 1 else f"{text} ({fixed(min(kept), digits)} … {fixed(max(kept), digits)})"


def slowest_convergence(store: Store) -> float | None:
    """The longest convergence on validation rows of any seed at any r from 30 on; None until all ran on an H200."""
    slowest = 0.0
    for cell in cells("paper"):
        if cell.settings["bond_dim"] < TARGET_FROM:
            continue
        found = store.load(cell)
        if found is None or TARGET_DEVICE not in found["provenance"]["device"]:
            return None
        for run in found["result"]["convergence"]:
            slowest = max(slowest, _or_never(run["by_validation"]["seconds"]))
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
EXPERIMENT = Experiment("table3", TITLE, cells, compute, tables, targets=TARGETS)
