"""Parts of a training: encoded rows, a new module, its settings, its outputs, and the reasons of a failed fit."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from restt import chain
from restt._common.devices import fitting_threads
from restt._common.errors import shown
from restt.diagonal import DiagonalTT
from restt.estimators.encoding import ROWS_AT_ONCE, Encoding, placed
from restt.estimators.settings import NET, Settings, read_penalty
from restt.estimators.streams import EncodedStream
from restt.estimators.tables import Examples
from restt.estimators.targets import Target
from restt.init import undrawn
from restt.module import ResTT
from restt.train import EpochRecord, Event, TrainConfig, train

if TYPE_CHECKING:
    from restt.estimators.net import BaseNet


@dataclass(frozen=True, eq=False)
class EncodedExamples:
    """Rows in the form that a training takes."""

    examples: Examples
    vectors: Tensor  # (B, N, I)
    targets: Tensor  # (B, O) values or (B,) classes
    loss_weights: np.ndarray  # (B,)


@dataclass(frozen=True, eq=False)
class Prepared:
    """A training that can begin: a module with a runs axis at its initial weights, its rows, and its settings."""

    module: ResTT
    encoding: Encoding
    target: Target
    rows: EncodedExamples
    held: EncodedExamples | None
    streamed: EncodedStream | None  # all rows, where these are a sample of a stream's
    config: TrainConfig
    settings: Settings
    seed: int

    @property
    def runs(self) -> int:
        """The number of runs of the module."""
        return len(self.module.first)

    @property
    def judged(self) -> Examples:
        """The rows on which a finished training is judged."""
        return (self.rows if self.held is None else self.held).examples

    def has_rows_of(self, settings: Settings, seed: int) -> bool:
        """True if its encoded rows are those of a training with these settings and this seed."""
        same = (self.settings.device, self.settings.dtype) == (settings.device, settings.dtype)
        return same and (self.held is None or self.seed == seed)

    def start(self, folder: Any) -> Generator[EpochRecord, None, None]:
        """Begin the training, or resume the one in ``folder``; returns its records."""
        rows, held = self.rows, self.held
        options: dict[str, Any] = {
            "config": self.config,
            "validation": None if held is None else (held.vectors, held.targets, held.loss_weights),
            "checkpoint_dir": folder,
        }
        if self.streamed is not None:
            return train(self.module, self.streamed, **options)
        return train(self.module, rows.vectors, rows.targets, sample_weight=unless_equal(rows.loss_weights), **options)


def unless_equal(weights: np.ndarray) -> np.ndarray | None:  # (B,)
    """Return None for weights that are all the same, which need no product in every step."""
    return None if (weights == weights[0]).all() else weights


def encode(examples: Examples, encoding: Encoding, target: Target, settings: Settings) -> EncodedExamples:
    """Encode rows: site vectors, on the training's device, and targets."""
    numbers = placed(encoding.numbers(examples.table), settings.device)
    vectors = torch.cat([chunk.to(settings.dtype) for chunk in encoding.chunks(numbers)]).to(settings.device)
    weights = target.row_weights(examples.y, examples.weights)
    return EncodedExamples(examples, vectors, target.encode(examples.y), weights)


def encode_stream(kept: Examples, held: Examples | None, encoding: Encoding, target: Target) -> EncodedStream | None:
    """Encode all rows of the stream that examples are a sample of, but those held out; None without a stream."""
    if kept.sample is None:
        return None
    left_out = np.empty(0, dtype=np.int64) if held is None or held.sample is None else held.sample.numbers
    mean_weight = float(target.row_weights(kept.y, kept.weights).sum() / kept.weights.sum())
    return EncodedStream(kept.sample.stream, encoding, target, left_out, mean_weight)


def new_module(
    parameters: BaseNet,
    encoding: Encoding,
    target: Target,
    rows: EncodedExamples,
    settings: Settings,
    seed: int,
) -> ResTT:
    """Make a module of the encoding's shape that starts at the mean of y, or at the shares of the classes."""
    weights = rows.examples.weights
    shares = torch.from_numpy(weights / weights.sum()).to(rows.vectors)
    moment = (shares @ rows.vectors.square().sum(-1)).double().cpu().clamp(min=NET.least_second_moment)
    with undrawn():
        module = ResTT(
            sites=len(encoding.order),
            feature_dim=encoding.widths,
            bond_dim=int(parameters.bond_dim),
            outputs=target.outputs,
            topology=parameters.topology,
            init=parameters._init,
            sigma2=parameters.sigma2,
            second_moment=moment,
            bias=True,
            runs=int(parameters.runs),
            dtype=settings.dtype,
            device=settings.device,
        )
    module.reset_parameters(seed=seed)
    assert module.bias is not None
    with torch.no_grad():
        module.bias.copy_(target.initial_bias().to(module.bias).expand_as(module.bias))
    return module


def check_same_shape(module: ResTT, parameters: BaseNet) -> None:
    """Raise ValueError where a parameter that shapes a module has changed since this one was made."""
    topology = parameters.topology
    if isinstance(topology, str):
        topology = type(module.topology).preset(topology, module.sites)
    for name, value in (("bond_dim", int(parameters.bond_dim)), ("topology", topology), ("runs", parameters.runs)):
        if value != getattr(module, name):
            raise ValueError(
                f"{name} changed since the first fit from {shown(getattr(module, name))} to {shown(value)}, so the "
                "weights cannot be kept: set it back, or fit with warm_start=False"
            )


def train_config(
    parameters: BaseNet, loss: str, target: Target, settings: Settings, rows: int, seed: int | None, *, once: bool
) -> TrainConfig:
    """Settings of a training; ``once`` is a single pass at a constant rate, for ``partial_fit``."""
    stops = 0 if once else NET.patience if parameters.early_stopping is True else int(parameters.early_stopping)
    return TrainConfig(
        epochs=1 if once else settings.epochs,
        batch_size=settings.batch_size,
        lr=float(parameters.lr),
        schedule="constant" if once else parameters.schedule,
        loss=loss,
        penalty=read_penalty(parameters.penalty, target.auto_penalty(rows)),
        dropout=float(parameters.dropout),
        patience=stops or None,
        keep="best" if stops else "last",
        seed=seed,
    )


def multiplication(precision: str) -> str:
    """Translate an estimator's precision to the name that the chain's kernels use."""
    return "float32" if precision == "float64" else precision


def member_outputs(module: ResTT | DiagonalTT, encoding: Encoding, numbers: np.ndarray, precision: str) -> np.ndarray:
    """Outputs of every member for rows of numbers (B, C), in pieces of bounded size: (S, B, O) float64."""
    return _outputs(module, encoding.chunks(placed(numbers, module.device)), len(numbers), precision)


def _outputs(module: ResTT | DiagonalTT, chunks: Iterable[Tensor], rows: int, precision: str) -> np.ndarray:
    work = min(rows, ROWS_AT_ONCE) * module.row_work
    with torch.no_grad(), chain.precision(multiplication(precision)), fitting_threads(work):
        parts = [module(vectors.to(module.device, module.dtype)).double().cpu() for vectors in chunks]
    return torch.cat(parts, dim=1).numpy()


def why_it_failed(module: ResTT, prepared: Prepared, events: Sequence[Event]) -> str:
    """Say what went wrong in a finished training with these events; empty where nothing did."""
    stopped = [event for event in events if event.kind == "failed"]
    reasons = []
    if stopped:
        runs = f"{len(stopped)} of {prepared.runs} runs were" if prepared.runs > 1 else "the training was"
        reasons.append(f"{runs} stopped because it exploded again and again ({stopped[0].message})")
    rows, target = prepared.rows, prepared.target
    judged = slice(None, None, -(-len(rows.vectors) // NET.judged_rows))
    vectors, targets, weights = rows.vectors[judged], rows.targets[judged].numpy(), rows.loss_weights[judged]
    outputs = _outputs(module, vectors.split(ROWS_AT_ONCE), len(vectors), prepared.settings.precision).mean(axis=0)
    shortfall = target.shortfall(outputs, targets, weights) if weights.any() else 0.0
    if not shortfall <= NET.failed_ratio:
        reasons.append(
            f"the fit ends worse than {target.constant_guess} on its own training rows: its loss is {shortfall:.3g} "
            "times as large"
        )
    return "; ".join(reasons)
