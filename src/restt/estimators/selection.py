"""Classes of a table by an average of residual trains, weighted by their log-loss on rows that they have not seen.

Candidates (:mod:`~restt.estimators.class_kernels`, :mod:`~restt.estimators.class_trains`) are fitted to the rows
outside each fold and averaged greedily by the log-loss of the rows inside. Kernels that have a share are then
conditioned on all rows; trains stay those of the folds, whose mean is better than one train, and are trained on with
all rows. All of them are put side by side in one module, whose runs' plain mean is the average. Where no train has a
share, or where rounding the kernels' products costs more than the trains gain, the products stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from restt._common.devices import fitting_threads
from restt.diagonal import DiagonalTT
from restt.estimators.class_kernels import Kernels, LogitSum, Searched
from restt.estimators.class_rows import ClassRows
from restt.estimators.class_trains import Trains
from restt.estimators.classes import log_loss, row_losses
from restt.estimators.columns import read_numbers
from restt.estimators.encoding import Encoding
from restt.estimators.posterior import encoding_of, with_run
from restt.estimators.settings import Settings, settle
from restt.estimators.tables import Examples
from restt.estimators.targets import Labels, class_numbers
from restt.module import ResTT
from restt.prior import Settings as PriorSettings
from restt.prior.fitting import side_by_side
from restt.prior.laplace import LogitPosterior
from restt.prior.rounding import residual_module
from restt.prior.rows import FitRows
from restt.train.runs import joined

if TYPE_CHECKING:
    from restt.estimators.classifier import ResTTClassifier

SHARES = "shares"


@dataclass(frozen=True, eq=False)
class Selected:
    """The averaged module and what goes with it."""

    module: ResTT | DiagonalTT
    encoding: Encoding
    target: Labels
    precision: str
    candidates: dict[str, tuple[float, float]]  # log-loss on held-out rows, share in the average
    loss: float | None  # that of the average; None where rows are too few to judge by
    rounding_error: float  # root mean square by which rounding moved its logits on the rows
    posterior: LogitPosterior | None = None
    average: Average | None = None  # both for partial_fit; None where it is not possible
    rows: FitRows | None = None


@dataclass(frozen=True, eq=False)
class Judged:
    """Logits of candidates on rows that they were not fitted to: the classes' shares, kernels, then trains."""

    rows: ClassRows
    names: tuple[str, ...]
    logits: np.ndarray  # (C, B, K)
    trains: int  # how many of them are trains

    def average(self, chosen: np.ndarray, cost: float, trains: bool = True) -> tuple[np.ndarray, float]:  # (B,) bool
        """Weights (C,) of the best average on the chosen rows, perhaps without trains, and its log-loss there."""
        rows, settings, kept = self.rows, self.rows.settings, len(self.names) - (0 if trains else self.trains)
        logits, labels, row_weights = self.logits[:kept, chosen], rows.labels[chosen], rows.weights[chosen]
        costs = np.where(np.arange(kept) >= len(self.names) - self.trains, cost, 0.0)
        found = greedy_weights(logits, labels, row_weights, costs, settings.rounds, settings.most_loss)
        loss = float(log_loss(np.tensordot(found, logits, 1), labels, row_weights))
        return np.concatenate([found, np.zeros(len(self.names) - kept)]), loss

    def spread(self, weights: np.ndarray) -> tuple[float, float, int]:  # (C,)
        """Mean and standard deviation of the log-loss of an average over held-out rows, and their number."""
        rows, chosen = self.rows, self.rows.judged
        logits = np.tensordot(weights, self.logits[:, chosen], 1)
        losses = row_losses(logits, rows.labels[chosen])
        shares = rows.weights[chosen] / rows.weights[chosen].sum()
        mean = float(shares @ losses)
        return mean, float(np.sqrt(shares @ (losses - mean) ** 2)), len(losses)

    def losses(self) -> list[float]:
        """Log-loss of each candidate; NaN where rows are too few to judge by."""
        rows = self.rows
        if not rows.is_judged:
            return [float("nan")] * len(self.names)
        return log_loss(self.logits[:, rows.judged], rows.labels[rows.judged], rows.weights[rows.judged]).tolist()


@dataclass(frozen=True, eq=False)
class Average:
    """Learned candidates of a fit and their weights in the average."""

    kernels: Kernels
    trains: Trains
    penalties: tuple[float, ...]  # of the trains that are candidates
    order: tuple[int, ...]  # of the sites
    names: tuple[str, ...]  # C
    losses: tuple[float, ...]  # C: log-loss on held-out rows
    weights: np.ndarray  # (C,)
    loss: float | None  # of the average on held-out rows; None where rows are too few to judge by
    of_kernels: tuple[np.ndarray, float]  # both of the best average without trains
    row_losses: tuple[float, float, int]  # on held-out rows: their mean, standard deviation and number

    @classmethod
    def learned(cls, rows: ClassRows, parameters: ResTTClassifier, seed: int) -> tuple[Average, list[Searched]]:
        """The average with the least log-loss on held-out rows, and the searches of the kernels."""
        own, sample = rows.settings, rows.first(rows.settings.most_rows)
        kernels = Kernels.learned(sample, PriorSettings.of_effort(parameters.effort))
        order = _site_order(rows, kernels.relevance)
        trains = Trains(sample.ordered(order), device_of(sample, parameters), seed)
        judged, found, penalties = _judged(kernels, trains)
        weights, loss, spread = np.eye(len(judged.names))[1], None, (0.0, 0.0, 0)
        of_kernels = weights, np.inf
        if sample.is_judged:
            weights, loss = judged.average(sample.judged, own.train_cost)
            of_kernels = judged.average(sample.judged, own.train_cost, trains=False)
            spread = judged.spread(weights)
        losses = tuple(judged.losses())
        found_average = cls(kernels, trains, penalties, order, judged.names, losses, weights, loss, of_kernels, spread)
        return found_average, found

    def kept(self) -> Average:
        """Reduce the average to what conditioning on more rows needs, without the rows where no train has a share."""
        rows = self.kernels.rows.first(1)
        trains = Trains(self.trains.rows, self.trains.device, self.trains.seed, self.trains.modules)
        if not self.weights[len(self.names) - len(self.penalties) :].any():
            trains = Trains(rows, self.trains.device, self.trains.seed)
        return replace(self, kernels=replace(self.kernels, rows=rows, by_fold=()), trains=trains)

    def conditioned(
        self,
        rows: ClassRows,
        table: np.ndarray,
        row_weights: np.ndarray,
        target: Labels,
        found: Sequence[Searched] = (),
    ) -> Selected:
        """The module of the average given rows (B, N), whose weights are those of a table before it was merged."""
        own, sample, device = rows.settings, self.kernels.rows, self.trains.device
        weights, loss, first = self.weights, self.loss, len(self.names) - len(self.penalties)

        def solved_with(weights: np.ndarray) -> LogitSum:
            solved = self.kernels.solve(weights[1:first], found)
            solved.constant[:] += weights[0] * rows.shares
            return solved

        precision, work = device.precision, float(len(sample)) ** 2 * len(rows.sites)
        with fitting_threads(work):
            solved = solved_with(weights)
            may_stay = rows.bond is None and loss is not None and not weights[first:].any()
            products, error = solved.product_cores(self.order, rows.bond or own.largest_bond, patient=not may_stay)
        may_stay = rows.bond is None and error > own.tolerance
        kernel_weights, kernel_loss = self.of_kernels if may_stay else (weights, np.inf)
        # A random error of the logits costs about half of its variance times p (1 - p), at most a quarter.
        if loss is not None and kernel_loss < loss + error**2 / 8:
            with fitting_threads(work):
                solved = solved if (kernel_weights == weights).all() else solved_with(kernel_weights)
                module = with_run(solved.diagonal(self.order)).to(device.device)
            weights, loss, error, precision = kernel_weights, kernel_loss, 0.0, "float64"
        else:
            shares = dict(zip(self.penalties, weights[first:].tolist(), strict=True))
            module = _averaged(_members(rows, self.order, solved, products, self.trains, shares), device)
        return Selected(
            module,
            encoding_of(rows.columns, self.order, [rows.sites[n] for n in self.order], table, row_weights),
            target,
            precision,
            dict(zip(self.names, zip(self.losses, weights.tolist(), strict=True), strict=True)),
            loss,
            error,
            solved.posterior(float(weights[0])),
        )


def select(given: Examples, parameters: ResTTClassifier, target: Labels, seed: int) -> Selected:
    """The average of candidates with the least log-loss on held-out rows."""
    rows = ClassRows.read(given, parameters, target, seed)
    average, searches = Average.learned(rows, parameters, seed)
    table = read_numbers(rows.columns, given.table)
    found = average.conditioned(rows, table, given.weights, target, searches)
    if len(rows) > rows.settings.most_rows:
        return found
    labels = class_numbers(given.y, target.classes)[:, None].astype(np.float64)
    return replace(found, average=average.kept(), rows=FitRows.of(table, labels, given.weights, seed))


def _judged(kernels: Kernels, trains: Trains) -> tuple[Judged, list[Searched], tuple[float, ...]]:
    """Every candidate on held-out rows, the kernels' searches, and the penalties of trains that are candidates."""
    sample = kernels.rows
    tasks: list[Callable[[], Any]] = [partial(trains.fit, trains.penalties, range(trains.raced)), *kernels.searches()]
    # Folds are many small searches; a single one of many rows fills all threads by itself.
    alone = sample.searches == 1 or trains.device.device.type != "cpu"
    _, *found = side_by_side(tasks, 1 if alone else torch.get_num_threads())
    names = (SHARES, *kernels.names)
    others = np.concatenate([_held_out_shares(sample)[None], kernels.held_out(found)])
    penalties = trains.penalties if _worth(trains, names, others) else ()
    trains.fit(penalties, range(trains.raced, len(sample.parts)))
    held_out = np.concatenate([others, trains.held_out(penalties, len(sample.parts))])
    names += tuple(f"train, penalty {penalty:g}" for penalty in penalties)
    return Judged(sample, names, held_out, len(penalties)), found, penalties


def _worth(trains: Trains, names: tuple[str, ...], others: np.ndarray) -> bool:  # (C, B, K)
    """Whether a train would have a share in the average on the rows of the first folds, if there are other folds."""
    rows, penalties, folds = trains.rows, trains.penalties, trains.raced
    if not penalties or folds == len(rows.parts):
        return True
    logits = np.concatenate([others, trains.held_out(penalties, folds)])
    judged = Judged(rows, (*names, *map(str, penalties)), logits, len(penalties))
    shares, _ = judged.average((rows.folds >= 0) & (rows.folds < folds), 0.0)
    return bool(shares[len(names) :].any())


def device_of(rows: ClassRows, parameters: ResTTClassifier) -> Settings:
    """Device and precision of the trainings."""
    own, width = rows.settings, sum(site.width for site in rows.sites)
    bond, count = rows.bond or own.train_bond, min(len(rows), own.step_rows)
    training: dict[str, Any] = {"precision": "auto", "batch_size": count, "epochs": own.train_steps}
    return settle(count, width, bond, own.folds, device=parameters.device, **training)


def _site_order(rows: ClassRows, relevance: np.ndarray) -> tuple[int, ...]:
    """Columns by falling relevance; those of one value after the first, where trains pass them over."""
    varying = set(rows.varying)
    first = [n for n in np.argsort(-relevance, kind="stable").tolist() if n in varying]
    return tuple(first[:1] + [n for n in range(len(relevance)) if n not in varying] + first[1:])


def greedy_weights(
    logits: np.ndarray,  # (C, B, K): of C candidates on rows that they were not fitted to
    labels: np.ndarray,  # (B,)
    weights: np.ndarray,  # (B,)
    costs: np.ndarray,  # (C,)
    rounds: int,
    most_loss: float,
) -> np.ndarray:  # (C,), summing to one
    """Weights of the average of logits with the least log-loss: greedy selection with replacement.

    It begins with the best candidate; each round adds the candidate, perhaps again, that lowers the loss of the average
    most (Caruana et al. 2004). The weights are those of the best round. A candidate with more than ``most_loss`` times
    the best one's loss takes no part: it has been far off somewhere, and may be on other rows. ``costs``: by how many
    nats, over all rows together, a candidate has to be better than one without costs; -log of its prior odds.

    >>> right = np.array([[0.0, 2.0], [2.0, 0.0]])
    >>> greedy_weights(np.stack([right, -right]), np.array([1, 0]), np.ones(2), np.zeros(2), 20, 2.0)
    array([1., 0.])
    """
    counts, prior = np.zeros(len(logits)), costs / weights.sum()
    losses = log_loss(logits, labels, weights) + prior
    barred = losses > most_loss * losses.min()
    chosen = int(losses.argmin())
    total, best, kept = np.zeros_like(logits[0]), np.inf, counts
    for size in range(1, rounds + 1):
        counts[chosen] += 1
        total = total + logits[chosen]
        if losses[chosen] < best:
            best, kept = float(losses[chosen]), counts.copy()
        losses = log_loss((total + logits) / (size + 1), labels, weights) + (counts @ prior + prior) / (size + 1)
        losses[barred] = np.inf
        chosen = int(losses.argmin())
    return kept / kept.sum()


def _held_out_shares(rows: ClassRows) -> np.ndarray:  # (B, K)
    """Logits of the classes' shares outside each fold, every class with one row more in all than it has."""
    logits = []
    for part in rows.parts or (np.arange(len(rows)),):
        counts = np.bincount(rows.labels[part], rows.weights[part], minlength=rows.classes) + 1 / rows.classes
        logits.append(np.tile(np.log(counts / counts.sum()), (len(rows), 1)))
    return rows.held_out(np.stack(logits))


def _members(
    rows: ClassRows,
    order: Sequence[int],
    solved: LogitSum,
    products: list[Tensor],
    trains: Trains,
    shares: dict[float, float],  # by penalty
) -> list[tuple[list[Tensor], float]]:
    """Cores of the members with their weights, which sum up to the average."""
    own, widths = rows.settings, [site.width for site in rows.sites]
    members = [(solved.additive_cores(order, rows.bond or own.largest_bond), 1.0)]
    if products:
        members.append((products, 1.0))
    bond = max(len(core) for cores, _ in members for core in cores)
    run_size = len(widths) * max(widths) * max(bond, own.train_bond + 1) ** 2
    fitting = (own.most_weights // run_size - len(members)) // max(len(trains.rows.parts), 1)
    # The largest that fit; one where nothing else has a share.
    chosen = sorted(shares, key=lambda penalty: -shares[penalty])
    chosen = chosen[: max(fitting, int(sum(shares.values()) > 1 - 1e-9))]
    used = 1 - sum(shares.values()) + sum(shares[penalty] for penalty in chosen)
    ordered = rows.ordered(order)
    for penalty in chosen:
        runs = trains.refined(penalty, ordered) if shares[penalty] else []
        members += [(cores, shares[penalty] / len(runs)) for cores in runs]
    return [(cores, weight / used) for cores, weight in members]


def _averaged(members: Sequence[tuple[list[Tensor], float]], device: Settings) -> ResTT:
    """The members as runs of one module, each scaled so that the plain mean is the average."""
    bond = max((core.shape[2] for cores, _ in members for core in cores[:-1]), default=1)
    parts = []
    for cores, weight in members:
        last = cores[-1] * (weight * len(members))
        inner = [torch.nn.functional.pad(core, (0, bond - core.shape[2])) for core in cores[:-1]]
        parts.append(residual_module([*inner, last]))
    return joined(parts).to(device.device, device.dtype)
