"""From an estimator and its data to a stream of epochs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_consistent_length
from torch import Tensor

from restt import chain
from restt._common.devices import fitting_threads
from restt._common.errors import shown
from restt.estimators.encoding import KNOTS, ROWS_AT_ONCE, Encoding, fit_encoding
from restt.estimators.memory import check_fits
from restt.estimators.plan import Plan, make_plan, read_penalty
from restt.estimators.reading import read_sample_weight, read_x
from restt.estimators.tables import Table
from restt.module import ResTT
from restt.train import EpochRecord, TrainConfig, train

# Epochs without a better validation loss after which early_stopping=True stops.
PATIENCE = 20
# A site whose vectors hardly vary would be given huge initial weights; for the initialisation they vary this much.
LEAST_SECOND_MOMENT = 0.1
# Parameters that shape the module: a fit that goes on must find them as they were.
SHAPING = ("bond_dim", "topology", "runs")


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of positive weight."""

    table: Table
    y: np.ndarray
    weights: np.ndarray

    def take(self, rows: np.ndarray) -> Rows:
        return Rows(self.table.take(rows), self.y[rows], self.weights[rows])


def begin(
    estimator: Any, x: Any, y: Any, sample_weight: Any, *, fresh: bool, once: bool = False, validation: Any = None
) -> tuple[Iterator[EpochRecord], int]:
    """Check everything, set the estimator up, and give back the records of its training and their number.

    ``fresh`` begins with new weights; ``once`` is a single pass over the rows, for ``partial_fit``.
    """
    with _columns_kept(estimator):
        return _begin(estimator, x, y, sample_weight, fresh, once, validation)


def _begin(
    estimator: Any, x: Any, y: Any, sample_weight: Any, fresh: bool, once: bool, validation: Any
) -> tuple[Iterator[EpochRecord], int]:
    rows = _read_rows(estimator, x, y, sample_weight, reset=fresh)
    if fresh:
        plan = _plan(estimator, rows, KNOTS * rows.table.width, once)
        _check_size(estimator, rows, KNOTS, plan)
        encoding = fit_encoding(
            rows.table,
            rows.weights,
            feature_map=estimator.feature_map,
            site_order=estimator.site_order,
            categorical_features=estimator.categorical_features,
            handle_unknown=estimator.handle_unknown,
            handle_missing=estimator.handle_missing,
        )
        target = estimator._new_target(rows.y, rows.weights)
    else:
        _check_unchanged(estimator)
        encoding, target = estimator.encoding_, estimator.target_
    plan = _plan(estimator, rows, sum(encoding.widths), once)
    _check_size(estimator, rows, max(encoding.widths), plan, target.outputs)

    seed = int(check_random_state(estimator.random_state).randint(2**31 - 1))
    rows, held_out = _split(estimator, rows, validation, None if once else seed)
    vectors = _site_vectors(encoding, rows, plan)
    targets, shares = target.encode(rows.y), target.row_weights(rows.y, rows.weights)
    held: tuple[Any, ...] | None = None
    if held_out is not None:
        held_shares = target.row_weights(held_out.y, held_out.weights)
        held = (_site_vectors(encoding, held_out, plan), target.encode(held_out.y), held_shares)

    if fresh:
        module, done = _new_module(estimator, encoding, vectors, rows.weights, plan, target, seed), 0
    else:
        module, done = estimator.module_.to(device=plan.device, dtype=plan.dtype), estimator.n_iter_
    config = TrainConfig(
        epochs=plan.epochs,
        batch_size=plan.batch_size,
        lr=float(estimator.lr),
        schedule="constant" if once else estimator.schedule,
        loss=estimator._loss,
        penalty=read_penalty(estimator.penalty, target.auto_penalty),
        dropout=float(estimator.dropout),
        patience=_patience(estimator) if not once else None,
        keep="best" if estimator.early_stopping and not once else "last",
        # None leaves the seed to the checkpoint; a fit that goes on must not repeat its order of rows.
        seed=None if _is_unseeded(estimator) else seed + done,
    )
    records = train(
        module,
        vectors,
        targets,
        config=config,
        sample_weight=None if (shares == shares[0]).all() else shares,
        validation=held,
        checkpoint_dir=None if once else estimator.checkpoint_dir,
    )
    # Only now that nothing can be refused any more does the estimator change.
    if fresh:
        estimator.history_, estimator.n_iter_ = [], 0
    estimator.module_, estimator.encoding_, estimator.target_ = module, encoding, target
    estimator.precision_ = plan.precision
    return _recorded(estimator, records, held_out or rows, plan.step_work), plan.epochs


@contextmanager
def _columns_kept(estimator: Any) -> Iterator[None]:
    """A fit that is refused leaves the number and names of columns as they were: a fitted model goes on predicting."""
    names = ("n_features_in_", "feature_names_in_")
    before = {name: vars(estimator)[name] for name in names if name in vars(estimator)}
    try:
        yield
    except BaseException:
        for name in names:
            vars(estimator).pop(name, None)
        vars(estimator).update(before)
        raise


def outputs(estimator: Any, numbers: np.ndarray) -> np.ndarray:  # (B, C) -> (S, B, O) float64
    """What every member of a fitted estimator answers, in pieces of bounded size."""
    module: ResTT = estimator.module_
    parts = []
    work = min(len(numbers), ROWS_AT_ONCE) * sum(module.feature_dims) * module.bond_dim**2 * len(module.first)
    multiplication = chain.precision(_multiplication(estimator.precision_))
    with torch.no_grad(), multiplication, fitting_threads(work):
        for start in range(0, len(numbers), ROWS_AT_ONCE):
            # Encoded on the CPU like the rows of a fit: the numbers are float64, which not every device has.
            chunk = torch.from_numpy(numbers[start : start + ROWS_AT_ONCE])
            vectors = estimator.encoding_.vectors(chunk).to(module.first)
            parts.append(module(vectors).double().cpu())
    return torch.cat(parts, dim=1).numpy()


def _read_rows(estimator: Any, x: Any, y: Any, sample_weight: Any, *, reset: bool) -> Rows:
    if y is None:
        raise ValueError(f"This {type(estimator).__name__} estimator requires y to be passed, but the target y is None")
    table = read_x(estimator, x, reset=reset)
    targets = estimator._read_y(y)
    check_consistent_length(np.empty(table.rows), targets)
    weights = read_sample_weight(sample_weight, table.rows)
    rows = Rows(table, targets, weights)
    return rows if (weights > 0).all() else rows.take(np.flatnonzero(weights > 0))


def _plan(estimator: Any, rows: Rows, width: int, once: bool) -> Plan:
    plan = make_plan(
        len(rows.y),
        width,
        int(estimator.bond_dim),
        int(estimator.runs),
        device=estimator.device,
        precision=estimator.precision,
        batch_size=estimator.batch_size,
        epochs=estimator.epochs,
    )
    return replace(plan, epochs=1) if once else plan


def _check_size(estimator: Any, rows: Rows, width: int, plan: Plan, outputs: int = 1) -> None:
    count = len(rows.y)
    check_fits(
        sites=rows.table.width,
        width=width,
        bond_dim=int(estimator.bond_dim),
        outputs=outputs,
        runs=int(estimator.runs),
        rows=count,
        batch=plan.batch_size or count,
        itemsize=plan.dtype.itemsize,
        device=plan.device,
    )


def _check_unchanged(estimator: Any) -> None:
    module: ResTT = estimator.module_
    topology = estimator.topology
    if isinstance(topology, str):
        topology = type(module.topology).preset(topology, module.sites)
    now = dict(zip(SHAPING, (estimator.bond_dim, topology, estimator.runs), strict=True))
    for name, value in now.items():
        if value != getattr(module, name):
            raise ValueError(
                f"{name} changed since the first fit from {shown(getattr(module, name))} to {shown(value)}, so the "
                "weights cannot be kept: set it back, or fit with warm_start=False"
            )


def _split(estimator: Any, rows: Rows, validation: Any, seed: int | None) -> tuple[Rows, Rows | None]:
    """Rows to train on, and rows held out: those given, or a random part of the first for early stopping."""
    if validation is not None:
        if not isinstance(validation, (tuple, list)) or len(validation) not in (2, 3):
            raise TypeError(f"validation must be (X, y) or (X, y, sample_weight), got {shown(validation)}")
        weights = validation[2] if len(validation) == 3 else None
        return rows, _read_rows(estimator, validation[0], validation[1], weights, reset=False)
    if not estimator.early_stopping or seed is None:
        return rows, None
    count = len(rows.y)
    if count < 2:
        raise ValueError("early_stopping holds rows out and needs at least 2 rows, got n_samples=1")
    held = min(count - 1, max(1, round(estimator.validation_fraction * count)))
    # A checkpoint can only go on with the same split, so without a seed of its own the split has a fixed one.
    fixed = 0 if _is_unseeded(estimator) else seed
    labels = estimator._split_labels(rows.y, held)
    kept, out = train_test_split(np.arange(count), test_size=held, random_state=fixed, stratify=labels)
    return rows.take(kept), rows.take(out)


def _site_vectors(encoding: Encoding, rows: Rows, plan: Plan) -> Tensor:  # (B, N, I)
    numbers = torch.from_numpy(encoding.numbers(rows.table))
    parts = [encoding.vectors(chunk).to(plan.dtype) for chunk in numbers.split(ROWS_AT_ONCE)]
    return torch.cat(parts).to(plan.device)


def _new_module(
    estimator: Any, encoding: Encoding, vectors: Tensor, weights: np.ndarray, plan: Plan, target: Any, seed: int
) -> ResTT:
    shares = torch.from_numpy(weights / weights.sum()).to(vectors)
    moment = (shares @ vectors.square().sum(-1)).double().cpu().clamp(min=LEAST_SECOND_MOMENT)
    module = ResTT(
        sites=len(encoding.order),
        feature_dim=encoding.widths,
        bond_dim=int(estimator.bond_dim),
        outputs=target.outputs,
        topology=estimator.topology,
        sigma2=estimator.sigma2,
        second_moment=moment,
        init=estimator._init,
        bias=True,
        runs=int(estimator.runs),
        dtype=plan.dtype,
        device=plan.device,
    )
    module.reset_parameters(seed=seed)
    assert module.bias is not None
    with torch.no_grad():
        module.bias.copy_(target.initial_bias().to(module.bias).expand_as(module.bias))
    return module


def _patience(estimator: Any) -> int | None:
    if estimator.early_stopping is True:
        return PATIENCE
    return int(estimator.early_stopping) or None


def _is_unseeded(estimator: Any) -> bool:
    return estimator.random_state is None and estimator.checkpoint_dir is not None


def _multiplication(precision: str) -> str:
    return "float32" if precision == "float64" else precision


def _recorded(estimator: Any, records: Iterator[EpochRecord], judged: Rows, step_work: float) -> Iterator[EpochRecord]:
    """Pass records on, keep them in the estimator, and let it finish when they end."""
    before = int(estimator.n_iter_)
    try:
        while True:
            # Both hold for the epoch only, not for what the consumer does between epochs.
            with chain.precision(_multiplication(estimator.precision_)), fitting_threads(step_work):
                record = next(records, None)
            if record is None:
                break
            estimator.history_.append(replace(record, epoch=before + record.epoch))
            estimator.n_iter_ = estimator.history_[-1].epoch
            yield estimator.history_[-1]
    except GeneratorExit:
        _finish(estimator, judged)
        raise
    _finish(estimator, judged)


def _finish(estimator: Any, judged: Rows) -> None:
    estimator._finish(estimator.encoding_.numbers(judged.table), judged.y, judged.weights)
