"""The arguments of a training, read and checked once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from restt._common.errors import shown
from restt._common.ranks import Ranks
from restt._common.seeds import fresh_seed
from restt.topology import Topology
from restt.train.augment import SiteDropout
from restt.train.config import TrainConfig
from restt.train.cuda_graph import GraphedStep
from restt.train.data import Batches, FeatureMap, RunData, read_data, read_x
from restt.train.objective import is_classes, read_targets, row_loss
from restt.train.runs import RunsView, per_run
from restt.train.state import TrainState
from restt.train.step import TrainStep, penalty_slopes
from restt.train.stream import Source, StreamData

# Rows that a feature map checks before the training, as a check of every batch would wait for the device.
CHECKED_ROWS = 4096


class Training:
    """Data on the device, settings per run, and the state; see :func:`restt.train.train` for the arguments."""

    def __init__(
        self,
        module: nn.Module,
        x: Any,
        y: Any,
        config: TrainConfig,
        sample_weight: Any,
        subset: Any,
        validation: Sequence[Any] | None,
        validation_subset: Any,
        feature_map: FeatureMap | None,
        ranks: Ranks,
    ) -> None:
        if not isinstance(config, TrainConfig):
            raise TypeError(f"config must be a restt.train.TrainConfig, got {shown(config)}")
        self.module, self.ranks = module, ranks
        self.feature_map = getattr(feature_map, "map", feature_map)  # without checks where the map offers that
        model = RunsView(module)
        self.total = total = model.runs
        self.epochs = [int(value) for value in per_run("epochs", config.epochs, total)]
        self.lr, self.weight_decay, self.dropout = (
            [float(value) for value in per_run(name, getattr(config, name), total)]
            for name in ("lr", "weight_decay", "dropout")
        )
        self.clip = per_run("clip_norm", math.inf if config.clip_norm is None else config.clip_norm, total)
        if config.penalty is not None:
            penalty_slopes(config.penalty, model.weights, [], total)
        self.run_ids = per_run("run_ids", range(total) if config.run_ids is None else config.run_ids, total)
        self.seeds = per_run("seed", fresh_seed() if config.seed is None else config.seed, total)

        source = x if isinstance(x, Source) else None
        if source is not None:
            _check_stream(y, config, sample_weight, subset, validation, validation_subset)
            x, y, *_ = next(source.blocks(0))
            x = source.features(x[:1])
        raw = torch.as_tensor(x).to(model.device) if source is not None else read_x(x, model.dtype, model.device)
        if config.augment is not None:
            config.augment.check(tuple(raw.shape))
        features = raw if feature_map is None else feature_map(raw[:CHECKED_ROWS])
        outputs = _count_outputs(model, features[:1].to(model.dtype))
        targets = torch.as_tensor(y)
        self.classes = is_classes(targets)
        if config.loss == "auto":
            config = replace(config, loss="cross-entropy" if self.classes else "mse")
        self.config = config
        self.loss = row_loss(config.loss)
        target = read_targets(targets, outputs, config.loss, model.dtype, model.device)
        if source is not None:
            sizes = (source.rows,) * total
            self.data: RunData = StreamData(
                raw, target, None, None, sizes, None, self.feature_map, source=source, loss=config.loss
            )
        else:
            self.data = read_data(raw, target, sample_weight, subset, total, feature_map=self.feature_map)
        self.validation = self._read_validation(model, raw, target, validation, validation_subset)
        if any(self.dropout) and not isinstance(getattr(module, "topology", None), Topology):
            raise ValueError(f"dropout drops sites and needs a restt.ResTT, got {type(module).__name__}")
        self.untrained_loss = float(self.loss(torch.zeros_like(target)[None], target[None]).mean())
        self.state = TrainState(module, self.config)

    def _read_validation(
        self, model: RunsView, x: Tensor, target: Tensor, validation: Sequence[Any] | None, subset: Any
    ) -> RunData | None:
        if validation is None and subset is None:
            return None
        weight = None
        if validation is not None:
            if not isinstance(validation, (tuple, list)) or len(validation) not in (2, 3):
                raise TypeError(f"validation must be (x, y) or (x, y, sample_weight), got {shown(validation)}")
            x = read_x(validation[0], model.dtype, model.device, "validation x")
            targets = torch.as_tensor(validation[1])
            if is_classes(targets) != self.classes:
                raise ValueError(f"validation y and y must both be classes or both values, got {targets.dtype}")
            outputs, loss = target.shape[1], self.config.loss
            target = read_targets(targets, outputs, loss, model.dtype, model.device, "validation y")
            weight = validation[2] if len(validation) == 3 else None
        return read_data(x, target, weight, subset, model.runs, "validation_subset", self.feature_map)

    def prepare(self) -> tuple[Batches, TrainStep, RunData | None]:
        """Make batches, step and validation rows of the runs that are still in training."""
        state, config = self.state, self.config
        runs = [run.place for run in state.runs]
        like = next(iter(state.working.parameters.values())).detach()
        dropout = None
        if any(self.dropout[run] for run in runs):
            assert isinstance(self.module.topology, Topology)
            dropout = SiteDropout(self.module.topology, [self.dropout[run] for run in runs], like)
        seeds, run_ids = [self.seeds[run] for run in runs], [self.run_ids[run] for run in runs]
        batches = self.data.keep(runs).batches(config.batch_size, seeds, run_ids, config.augment, dropout, self.ranks)
        slopes, start = {}, None
        if config.penalty is not None:
            slopes = penalty_slopes(config.penalty, state.working.weights, runs, self.total)
        if state.start is not None:
            start = {name: state.start[name] if len(runs) == self.total else state.start[name][runs] for name in slopes}
        limits = torch.tensor([min(run.clip, self.clip[run.place]) for run in state.runs], dtype=like.dtype)
        clip = limits.to(like.device) if bool(limits.isfinite().any()) else None
        # A recording cannot hold the sum over processes on every backend.
        kind = GraphedStep if like.is_cuda and self.ranks.size == 1 else TrainStep
        step = kind(state.working, state.adam, self.loss, slopes, start, clip, state.ema, self.ranks)
        return batches, step, None if self.validation is None else self.validation.keep(runs)


def _check_stream(
    y: Any, config: TrainConfig, sample_weight: Any, subset: Any, validation: Any, validation_subset: Any
) -> None:
    """Raise ValueError for arguments that rows in blocks cannot have."""
    given = {
        "y": y,
        "sample_weight": sample_weight,
        "subset": subset,
        "validation_subset": None if validation is not None else validation_subset,
        "augment": config.augment,
    }
    for name, value in given.items():
        if value is not None:
            raise ValueError(f"{name} must be None where x is a stream, got {shown(value)}")
    if config.batch_size is None:
        raise ValueError("batch_size must be a number where x is a stream, got None")


@torch.no_grad()
def _count_outputs(model: RunsView, row: Tensor) -> int:
    """Count the outputs by running one row (1, …), which refuses rows that do not fit the module."""
    mode = model.module.training
    model.module.eval()
    try:
        return model(row.unsqueeze(0)).shape[-1]
    finally:
        model.module.train(mode)
