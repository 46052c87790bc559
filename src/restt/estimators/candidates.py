"""Candidate models of classes, each fitted to the rows outside every fold, and what they say of the rows inside.

All of them are residual trains over the same states in the end. Those here are trained over a view, by gradients, folds
and penalties side by side as runs; those of :mod:`~restt.estimators.logistic` and
:mod:`~restt.estimators.processes` are solved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from restt._common.devices import fitting_threads
from restt.estimators.class_settings import ClassSettings
from restt.estimators.settings import CHAIN_GRADE, Settings
from restt.estimators.views import View
from restt.module import ResTT
from restt.prior import Site
from restt.prior.pairs import Rows
from restt.train import Penalty, TrainConfig, train
from restt.train.runs import working_copy

# Site vectors that hardly vary would be given huge initial weights; for the initialisation they vary this much.
_LEAST_SECOND_MOMENT = 0.1


@dataclass(frozen=True, eq=False)
class ClassRows:
    """Rows of a fit: the states of each column, in the order of the sites, and which class each row is."""

    sites: tuple[Site, ...]
    states: tuple[Tensor, ...]  # N of (B, I_n)
    codes: Rows  # the same as a state and a share of the next one
    numbers: np.ndarray  # (B,)
    weights: np.ndarray  # (B,) what rows count in the loss
    bias: np.ndarray  # (K,) logits of the classes' shares
    folds: np.ndarray  # (B,) the fold that a row is held out of; -1 where every model sees it
    settings: ClassSettings
    bond: int | None = None  # the largest of a candidate; None for what each kind of them needs

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def classes(self) -> int:
        return len(self.bias)

    @cached_property
    def varying(self) -> tuple[int, ...]:
        """Sites of more than one state."""
        return tuple(n for n, states in enumerate(self.states) if bool((states != states[:1]).any()))

    def ordered(self, order: Sequence[int]) -> ClassRows:
        """The rows with their sites in another order."""
        sites, states = tuple(self.sites[n] for n in order), tuple(self.states[n] for n in order)
        codes = Rows(*(part[:, list(order)].contiguous() for part in (self.codes.code, self.codes.share)))
        return replace(self, sites=sites, states=states, codes=codes)

    @cached_property
    def parts(self) -> tuple[np.ndarray, ...]:
        """The rows that each fold's models are fitted to."""
        return tuple(np.flatnonzero(self.folds != fold) for fold in range(int(self.folds.max()) + 1))

    def held_out(self, logits: np.ndarray) -> np.ndarray:  # (F, B, K) -> (B, K)
        """What each row is given by the fold that did not see it; the mean over folds where all saw it."""
        found = logits.mean(axis=0)
        for fold, said in enumerate(logits):
            found[self.folds == fold] = said[self.folds == fold]
        return found


def stratified_folds(
    numbers: np.ndarray,  # (B,)
    count: int,
    pieces: np.ndarray | None = None,  # (B,), of sum P
) -> np.ndarray:  # (P,)
    """The fold of each row, every class dealt out in turn; -1 for a class of one row, which every fold has to see.

    A row of several ``pieces``, at most ``count``, is in as many folds, one after the other.

    >>> stratified_folds(np.array([0, 0, 1, 0, 0, 2, 1]), 2).tolist()
    [0, 1, 0, 0, 1, -1, 1]
    >>> stratified_folds(np.array([0, 1, 1]), 3, np.array([2, 2, 1])).tolist()
    [0, 1, 2, 0, 1]
    """
    sizes = np.ones(len(numbers), dtype=int) if pieces is None else pieces
    each = np.repeat(numbers, sizes)
    folds = np.full(len(each), -1)
    dealt = 0
    for number in np.unique(numbers):
        places = np.flatnonzero(each == number)
        if len(places) > 1:
            folds[places] = np.arange(dealt, dealt + len(places)) % count
            dealt += len(places)
    return folds


@dataclass(frozen=True, eq=False)
class Member:
    """The mean of a module's runs over a view, its share in the average, and how far rounding moved its logits."""

    module: ResTT
    view: View
    share: float
    error: float = 0.0  # root mean square over the rows


@dataclass(frozen=True, eq=False)
class Trained:
    """Trains over a view, one module of a run per fold for each penalty."""

    view: View
    penalties: tuple[float, ...]
    modules: tuple[ResTT, ...]
    held_out: np.ndarray  # (P, B, K)

    @property
    def names(self) -> list[str]:
        return [f"{self.view.name}, penalty {penalty:g}" for penalty in self.penalties]

    def members(self, shares: np.ndarray) -> list[Member]:  # (P,)
        """The mean over folds under each penalty that has a share."""
        pairs = zip(self.modules, shares, strict=True)
        return [Member(module, self.view, float(share)) for module, share in pairs if share > 0]


def train_candidates(
    rows: ClassRows, view: View, penalties: Sequence[float], bond: int, settings: Settings, seed: int
) -> Trained:
    """Trains over a view, so many runs at a time."""
    own = rows.settings
    vectors = view.vectors(rows.states).to(settings.device, settings.dtype)
    targets, folds = torch.from_numpy(rows.numbers), len(rows.parts)
    shares = torch.from_numpy(rows.weights / rows.weights.sum()).to(vectors)
    moment = (shares @ vectors.square().sum(-1)).double().cpu().clamp(min=_LEAST_SECOND_MOMENT)
    even = bool((rows.weights == rows.weights[0]).all())
    modules, held_out = [], []
    at_once = max(1, own.runs_at_once // folds)
    for start in range(0, len(penalties), at_once):
        group = list(penalties[start : start + at_once])
        each = [penalty for penalty in group for _ in range(folds)]
        module = ResTT(
            len(view.widths),
            view.widths,
            bond,
            rows.classes,
            second_moment=moment,
            bias=True,
            runs=len(each),
            dtype=settings.dtype,
            device=settings.device,
        )
        # The same initial weights for every penalty: what differs is the penalty alone.
        module.reset_parameters(seed=seed, run_ids=list(range(folds)) * len(group))
        assert module.bias is not None
        with torch.no_grad():
            module.bias.copy_(torch.from_numpy(rows.bias).to(module.bias).expand_as(module.bias))
        config = TrainConfig(
            rates="uniform",
            epochs=own.steps,
            batch_size=None,
            lr=own.rate,
            schedule="cosine",
            loss="cross-entropy",
            penalty=Penalty(chain=[CHAIN_GRADE * penalty for penalty in each], linear=each, head=each),
            seed=seed,
        )
        with fitting_threads(settings.step_work):
            for _ in train(
                module,
                vectors,
                targets,
                config=config,
                sample_weight=None if even else rows.weights,
                subset=list(rows.parts) * len(group),
            ):
                pass
            with torch.no_grad():
                said = module(vectors).double().cpu().numpy().reshape(len(group), folds, len(rows), rows.classes)
        modules += [working_copy(module, range(run, run + folds)).cpu() for run in range(0, len(each), folds)]
        held_out += [rows.held_out(one) for one in said]
    return Trained(view, tuple(penalties), tuple(modules), np.stack(held_out))
