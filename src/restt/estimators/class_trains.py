"""Candidates for classes that are low-bond trains, trained over straight lines or over coarse hats of each column.

A view is a matrix V (I, J) for each site: its vectors are u = Vᵀ x. Hats of a coarse grid are straight between its
knots, and so are sums of hats of a finer grid that holds the same knots; a straight line is its values at the knots.
Since a train is linear in each site vector, one over u is one over x exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from restt._common.devices import fitting_threads
from restt.estimators.class_rows import ClassRows
from restt.estimators.settings import CHAIN_GRADE, Settings
from restt.features import Hat
from restt.module import ResTT
from restt.prior import Site
from restt.prior.rows import weighted_quantile
from restt.train import Penalty, TrainConfig, train
from restt.train.runs import working_copy


@dataclass(frozen=True, eq=False)
class View:
    """One matrix V (I_n, J_n) for each site; None where the train passes a site over."""

    name: str
    matrices: tuple[Tensor | None, ...]

    @cached_property
    def places(self) -> list[int]:
        """The sites that the train reads."""
        return [n for n, matrix in enumerate(self.matrices) if matrix is not None]

    @cached_property
    def widths(self) -> list[int]:
        """Widths of the sites that the train reads."""
        return [matrix.shape[1] for matrix in self.matrices if matrix is not None]

    def vectors(self, rows: ClassRows, device: Settings) -> Tensor:  # (B, places, J)
        """Site vectors of rows, padded to the widest."""
        shape = (len(rows), len(self.places), max(self.widths))
        found = torch.zeros(shape, dtype=device.dtype, device=device.device)
        for n, place in enumerate(self.places):
            matrix = self.matrices[place]
            assert matrix is not None
            found[:, n, : matrix.shape[1]] = (rows.codes.vectors(place, len(matrix)) @ matrix).to(found)
        return found

    def cores(self, module: ResTT, run: int, widths: Sequence[int]) -> list[Tensor]:  # N of (left, I_n, right)
        """Cores over the states, which sum to one and have these widths, of a run of a train over the view."""
        inner = iter(core[run].detach().double().cpu() for core in module.cores())
        found: list[Tensor] = []
        for matrix, width in zip(self.matrices, widths, strict=True):
            if matrix is None:  # never the first site or the last
                bond = found[-1].shape[2]
                found.append(torch.eye(bond, dtype=torch.float64)[:, None, :].expand(bond, width, bond))
                continue
            core = next(inner)
            found.append(core[:, :1] + torch.einsum("ij,ljr->lir", matrix, core[:, 1:]))
        return found


def line_view(sites: Sequence[Site], read: Sequence[int], furthest: float) -> View:
    """A constant and the standardised number of each column, flat beyond ±``furthest``; other states are one-hot."""
    matrices: list[Tensor | None] = [None] * len(sites)
    for n in read:
        site = sites[n]
        matrix = torch.eye(site.width, dtype=torch.float64)
        if site.knots is not None:
            line = torch.tensor(site.values, dtype=torch.float64).clamp(-furthest, furthest)
            both = torch.stack([torch.ones_like(line), line], 1)
            matrix = torch.block_diag(both, torch.eye(site.width - len(line), dtype=torch.float64))
        matrices[n] = matrix
    return View("lines", tuple(matrices))


def hat_view(rows: ClassRows, read: Sequence[int], knots: int) -> View:
    """Hats at up to ``knots`` of each column's own knots, those nearest to its quantiles, centred over the rows."""
    matrices: list[Tensor | None] = [None] * len(rows.sites)
    share = torch.from_numpy(rows.weights / rows.weights.sum())
    for n in read:
        site = rows.sites[n]
        matrix = torch.eye(site.width, dtype=torch.float64)
        if site.knots is not None and len(site.knots) > knots:
            coarse = _coarse_knots(site, rows.table[:, n], rows.weights, knots)
            hats = Hat(knots=[coarse])(np.array(site.knots)[:, None])[:, 0]  # (I, J)
            matrix = torch.block_diag(hats, torch.eye(site.width - len(site.knots), dtype=torch.float64))
        matrices[n] = matrix - share @ rows.codes.vectors(n, site.width) @ matrix
    return View("hats", tuple(matrices))


def _coarse_knots(site: Site, column: np.ndarray, weights: np.ndarray, count: int) -> list[float]:
    present, own = ~np.isnan(column), np.array(site.knots)
    levels = np.linspace(0, 1, count)[1:-1]
    wanted = (weighted_quantile(column[present], weights[present], levels) - site.shift) / site.scale
    nearest = np.abs(own[None, :] - np.asarray(wanted)[:, None]).argmin(axis=1)
    return own[np.unique([0, *nearest, len(own) - 1])].tolist()


@dataclass(frozen=True, eq=False)
class TrainCandidates:
    """Trains over a view, one module of a run per fold for each penalty, judged on held-out rows."""

    rows: ClassRows
    view: View
    names: tuple[str, ...]
    penalties: tuple[float, ...]
    modules: tuple[ResTT, ...]
    held_out: np.ndarray  # (P, B, K)

    def refined(self, place: int, rows: ClassRows, device: Settings, seed: int) -> ResTT:
        """Runs under one of the penalties, trained on with all rows: fewer of them where rows are many."""
        own = rows.settings
        runs = int(np.clip(own.folds * own.most_rows // len(rows), 1, len(self.rows.parts)))
        module = working_copy(self.modules[place], range(runs)).to(device.device)
        batch = None if len(rows) <= own.most_rows else own.batch
        steps = own.refining_steps if batch is None else own.many_steps
        epochs = steps if batch is None else int(np.clip(steps * batch // len(rows), 1, own.most_epochs))
        # The loss is a mean over rows: the penalty that was right for the sample is a smaller one for more rows.
        penalty = self.penalties[place] * len(self.rows) / len(rows)
        config = _config([penalty] * runs, seed, epochs, batch, own.refining_rate)
        _train(module, self.view.vectors(rows, device), rows, config, None, device)
        return module.cpu()


def training_work(rows: ClassRows, view: View, bond: int, steps: int) -> float:
    """Multiplications of a candidate's training: the chain's, and those of its last site with all classes."""
    products = sum(view.widths) * bond**2 + max(view.widths) * bond * rows.classes
    return float(len(rows)) * products * rows.settings.folds * steps


def train_candidates(
    rows: ClassRows, view: View, penalties: Sequence[float], bond: int, steps: int, device: Settings, seed: int
) -> TrainCandidates:
    """Trains over a view, folds and penalties side by side."""
    settings, folds = rows.settings, len(rows.parts)
    vectors = view.vectors(rows, device)
    shares = torch.from_numpy(rows.weights / rows.weights.sum()).to(vectors)
    # Site vectors that hardly vary would be given huge initial weights.
    moment = (shares @ vectors.square().sum(-1)).double().cpu().clamp(min=settings.least_second_moment)
    modules, held_out = [], []
    at_once = max(1, settings.runs_at_once // folds)
    for start in range(0, len(penalties), at_once):
        group = list(penalties[start : start + at_once])
        module = ResTT(
            len(view.widths),
            view.widths,
            bond,
            rows.classes,
            second_moment=moment,
            bias=True,
            runs=len(group) * folds,
            dtype=device.dtype,
            device=device.device,
        )
        # Equal initial weights for every penalty: they differ in the penalty alone.
        module.reset_parameters(seed=seed, run_ids=list(range(folds)) * len(group))
        assert module.bias is not None
        with torch.no_grad():
            module.bias.copy_(torch.from_numpy(rows.shares).to(module.bias).expand_as(module.bias))
        config = _config(np.repeat(group, folds).tolist(), seed, steps, None, settings.rate)
        _train(module, vectors, rows, config, list(rows.parts) * len(group), device)
        with fitting_threads(device.step_work), torch.no_grad():
            logits = module(vectors).double().cpu().numpy()
        modules += [working_copy(module, range(run, run + folds)).cpu() for run in range(0, module.runs or 1, folds)]
        held_out.append(rows.held_out(logits.reshape(len(group), folds, len(rows), rows.classes)))
    names = tuple(f"{view.name}, penalty {penalty:g}" for penalty in penalties)
    return TrainCandidates(rows, view, names, tuple(penalties), tuple(modules), np.concatenate(held_out))


def _config(penalties: list[float], seed: int, epochs: int, batch: int | None, rate: float) -> TrainConfig:
    return TrainConfig(
        rates="uniform",
        epochs=epochs,
        batch_size=batch,
        lr=rate,
        schedule="cosine",
        loss="cross-entropy",
        penalty=Penalty(chain=[CHAIN_GRADE * penalty for penalty in penalties], linear=penalties, head=penalties),
        seed=seed,
    )


def _train(
    module: ResTT,
    vectors: Tensor,
    rows: ClassRows,
    config: TrainConfig,
    subset: list[np.ndarray] | None,
    device: Settings,
) -> None:
    weights = None if bool((rows.weights == rows.weights[0]).all()) else rows.weights
    with fitting_threads(device.step_work):
        for _ in train(
            module, vectors, torch.from_numpy(rows.labels), config=config, sample_weight=weights, subset=subset
        ):
            pass
