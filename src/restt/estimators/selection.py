"""Classes of a table by an average of residual trains, weighted by their log-loss on rows that they have not seen.

Candidates (:mod:`~restt.estimators.class_kernels`, :mod:`~restt.estimators.class_trains`) are fitted to the rows
outside each of five folds and averaged greedily by the log-loss of the rows inside. Kernels that have a share are then
conditioned on all rows; trains stay those of the folds, whose mean is better than one train. All of them are put side
by side in one module, whose runs' plain mean is the average.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from restt.estimators.averaging import doubts, fitted_temperature, greedy_weights, log_loss
from restt.estimators.class_kernels import KernelCandidates, kernel_candidates
from restt.estimators.class_rows import ClassRows
from restt.estimators.class_trains import TrainCandidates, hat_view, line_view, train_candidates, training_work
from restt.estimators.encoding import Encoding, with_site_means
from restt.estimators.gradient import Examples
from restt.estimators.settings import Settings, settle
from restt.estimators.targets import Labels
from restt.module import ResTT
from restt.prior import Settings as PriorSettings
from restt.prior.rounding import residual_module
from restt.prior.sites import hat_map

if TYPE_CHECKING:
    from restt.estimators.classifier import ResTTClassifier

SHARES = "shares"


@dataclass(frozen=True, eq=False)
class Selected:
    """The averaged module and what goes with it."""

    module: ResTT
    encoding: Encoding
    target: Labels
    precision: str
    candidates: dict[str, tuple[float, float]]  # log-loss on held-out rows, share in the average
    loss: float | None  # that of the average; None where rows are too few to judge by
    rounding_error: float  # root mean square by which rounding moved its logits on the rows


def select(given: Examples, parameters: ResTTClassifier, target: Labels, seed: int) -> Selected:
    """The average of candidates with the least log-loss on held-out rows."""
    rows = ClassRows.read(given, parameters, target, seed)
    sample = rows.first(rows.settings.most_rows)
    kernels = kernel_candidates(sample, PriorSettings.of_effort(parameters.effort))
    order = _site_order(rows, kernels.relevance)
    device = _device(sample, parameters)
    trains = _trains(sample.ordered(order), device, seed) if _leave_room(sample, kernels) else []
    weights, temperature, losses, loss = _chosen(sample, kernels, trains)
    members, error = _members(rows, order, kernels, trains, weights, device, seed)
    hats, shift, scale = hat_map([rows.sites[n] for n in order])
    encoding = Encoding(rows.columns, order, hats, shift, scale, shift.clone(), None)
    return Selected(
        _averaged(members, device),
        with_site_means(encoding, encoding.numbers(given.table), given.weights),
        replace(target, temperature=temperature),
        device.precision,
        {name: (losses[name], weights[name]) for name in weights},
        loss,
        error,
    )


def _device(rows: ClassRows, parameters: ResTTClassifier) -> Settings:
    own = rows.settings
    return settle(
        len(rows),
        sum(site.width for site in rows.sites),
        rows.bond or own.hat_bond,
        own.folds,
        device=parameters.device,
        precision="auto",
        batch_size=len(rows),
        epochs=own.hat_steps,
    )


def _site_order(rows: ClassRows, relevance: np.ndarray) -> tuple[int, ...]:
    """Columns by falling relevance; those of one value after the first, where trains pass them over."""
    varying = set(rows.varying)
    first = [n for n in np.argsort(-relevance, kind="stable").tolist() if n in varying]
    return tuple(first[:1] + [n for n in range(len(relevance)) if n not in varying] + first[1:])


def _leave_room(rows: ClassRows, kernels: KernelCandidates) -> bool:
    """Whether the best kernel's loss is more than the cost of a train, which nothing else could repay."""
    if not rows.is_judged:
        return False
    weights = rows.weights[rows.judged]
    losses = log_loss(kernels.held_out[:, rows.judged], rows.labels[rows.judged], weights)
    return bool(losses.min() * weights.sum() > rows.settings.train_cost)


def _trains(rows: ClassRows, device: Settings, seed: int) -> list[TrainCandidates]:
    """As many trained candidates as the budget has room for."""
    own = rows.settings
    # A train over a view has a bond more over the states.
    most = own.hat_bond if rows.bond is None else rows.bond - 1
    if len(rows.sites) > own.most_columns or most == 0:
        return []
    read = sorted({0, *rows.varying, len(rows.sites) - 1})
    views = [line_view(rows.sites, read, own.furthest), hat_view(rows, read, own.hat_knots)]
    bonds = [min(own.line_bond, most), most]
    steps = [own.line_steps, own.hat_steps]
    works = [training_work(rows, *each) for each in zip(views, bonds, steps, strict=True)]
    kept: list[list[float]] = [[], []]
    spent = 0.0
    for pair in zip_longest(own.line_penalties, own.hat_penalties):
        for chosen, penalty, work in zip(kept, pair, works, strict=True):
            if penalty is not None and spent + work <= own.trained_work:
                chosen.append(penalty)
                spent += work
    plans = [plan for plan in zip(views, kept, bonds, steps, strict=True) if plan[1]]
    return [train_candidates(rows, *plan, device, seed) for plan in plans]


def _chosen(
    rows: ClassRows, kernels: KernelCandidates, trains: Sequence[TrainCandidates]
) -> tuple[dict[str, float], float, dict[str, float], float | None]:
    """The candidates' weights, the temperature of the average, the candidates' log-losses and the average's."""
    names = [SHARES, *kernels.names, *(name for family in trains for name in family.names)]
    if not rows.is_judged:
        # Too few rows to judge by: logistic regression.
        weights = {name: float(name == kernels.default) for name in names}
        return weights, 1.0, dict.fromkeys(names, float("nan")), None
    held_out = [_held_out_shares(rows)[None], kernels.held_out, *(family.held_out for family in trains)]
    logits = np.concatenate(held_out)[:, rows.judged]
    labels, row_weights = rows.labels[rows.judged], rows.weights[rows.judged]
    losses = log_loss(logits, labels, row_weights)
    doubt = doubts(logits[losses.argmin()], labels)
    costs = np.where(np.arange(len(names)) > len(kernels.names), rows.settings.train_cost, 0.0)
    found = greedy_weights(logits, labels, row_weights, doubt=doubt, costs=costs)
    average = np.tensordot(found, logits, 1)
    temperature = fitted_temperature(average, labels, row_weights, rows.settings.temperatures, doubt)
    loss = float(log_loss(average / temperature, labels, row_weights))
    named = (dict(zip(names, values.tolist(), strict=True)) for values in (found, losses))
    weights, by_name = named
    return weights, temperature, by_name, loss


def _held_out_shares(rows: ClassRows) -> np.ndarray:  # (B, K)
    """Logits of the classes' shares outside each fold, every class with one row more in all than it has."""
    logits = []
    for part in rows.parts:
        counts = np.bincount(rows.labels[part], rows.weights[part], minlength=rows.classes) + 1 / rows.classes
        logits.append(np.tile(np.log(counts / counts.sum()), (len(rows), 1)))
    return rows.held_out(np.stack(logits))


def _members(
    rows: ClassRows,
    order: Sequence[int],
    kernels: KernelCandidates,
    trains: Sequence[TrainCandidates],
    weights: dict[str, float],
    device: Settings,
    seed: int,
) -> tuple[list[tuple[list[Tensor], float]], float]:
    """Cores of the members with their weights, which sum up to the average, and the error of the rounded one."""
    own, widths = rows.settings, [rows.sites[n].width for n in order]
    largest = rows.bond or own.largest_bond
    solved = kernels.solve(np.array([weights[name] for name in kernels.names]), rows)
    solved = replace(solved, constant=solved.constant + weights[SHARES] * rows.shares)
    members = [(solved.additive_cores(order, largest), 1.0)]
    products, error = solved.product_cores(order, largest)
    if products:
        members.append((products, 1.0))
    chosen = [
        (weights[name], family, place)
        for family in trains
        for place, name in enumerate(family.names)
        if weights[name] > 0
    ]
    chosen.sort(key=lambda each: each[0])
    bond = max(len(core) for cores, _ in members for core in cores)
    run_size = len(widths) * max(widths) * max(bond, own.hat_bond + 1) ** 2
    left_out = 0.0
    while chosen and (len(members) + own.folds * len(chosen)) * run_size > own.most_weights:
        if left_out + chosen[0][0] == 1:
            break
        left_out += chosen.pop(0)[0]
    ordered = rows.ordered(order)
    for share, family, place in chosen:
        module = family.refined(place, ordered, device, seed)
        runs = module.runs or 1
        members += [(family.view.cores(module, run, widths), share / runs) for run in range(runs)]
    return [(cores, weight / (1 - left_out)) for cores, weight in members], error / (1 - left_out)


@torch.no_grad()
def _averaged(members: Sequence[tuple[list[Tensor], float]], device: Settings) -> ResTT:
    """The members as runs of one module, each scaled so that the plain mean is the average."""
    bond = max(core.shape[2] for cores, _ in members for core in cores[:-1]) if len(members[0][0]) > 1 else 1
    parts = []
    for cores, weight in members:
        last = cores[-1] * (weight * len(members))
        inner = [torch.nn.functional.pad(core, (0, bond - core.shape[2])) for core in cores[:-1]]
        parts.append(residual_module([*inner, last]))
    like = parts[0]
    module = ResTT(
        like.sites,
        list(like.feature_dims),
        bond,
        like.outputs,
        runs=len(parts),
        dtype=device.dtype,
        device=device.device,
    )
    for name, parameter in module.named_parameters():
        parameter.copy_(torch.stack([part.get_parameter(name) for part in parts]))
    return module
