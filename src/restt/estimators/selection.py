"""Classes of a table by an average of residual trains that is chosen by what its parts say of rows they have not seen.

Candidates (:mod:`~restt.estimators.candidates`, :mod:`~restt.estimators.modes`) are fitted to the rows outside each of
five folds, averaged greedily by the log-loss of the rows inside, and put side by side in one module whose runs' plain
mean is the average.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from restt.estimators.additive import Sums, line_candidates
from restt.estimators.averaging import doubts, fitted_temperature, greedy_weights, log_loss
from restt.estimators.candidates import (
    BOND,
    FOLDS,
    STEPS,
    ClassRows,
    Member,
    Trained,
    stratified_folds,
    train_candidates,
)
from restt.estimators.encoding import KNOTS, Encoding, with_site_means
from restt.estimators.gradient import Examples
from restt.estimators.merged import Merged
from restt.estimators.modes import FURTHEST, Modes, mode_candidates
from restt.estimators.settings import Settings, settle
from restt.estimators.targets import Labels
from restt.estimators.views import View, centred, hat_view, line_view, rewritten
from restt.module import ResTT
from restt.prior.sites import fit_sites, hat_map

if TYPE_CHECKING:
    from restt.estimators.classifier import ResTTClassifier

# Folds of effort="quick", which also has no modes and one penalty of each kind.
QUICK_FOLDS = 3
# Fewer rows, of classes that have more than one, are too few to judge candidates by.
FEWEST_ROWS = 10
# Knots of a column's finest grid, on which all members live.
FINE_KNOTS = 16
# Penalties of trained candidates over hats and over straight lines, those first that stay where there is no time for
# all. Hats have eight times the weights to spread a function over, so that less does the same.
TRAINED_HAT_PENALTIES, TRAINED_LINE_PENALTIES = (0.001, 0.003, 0.0003), (0.01, 0.003, 0.03)
# Multiplications (rows · Σ widths · r² · runs · steps) that all candidates may take together, about 25 seconds.
BUDGET = 1e11
# A prior has scales for each column; a train that holds the logits of K classes needs bonds up to K, or for straight
# lines up to the number of columns. Beyond these they are left out.
MOST_MODE_COLUMNS, MOST_BOND = 100, 40
# Multiplications that the regressions on straight lines may take, with about 720 passes of each fold over the rows.
LINE_PASSES, LINE_WORK = 720, 1e11
# Trains over more columns explode or learn nothing; the regressions do not mind, while all states fit in memory.
MOST_TRAINED_COLUMNS, MOST_COLUMNS, MOST_ENTRIES = 500, 5000, 2_500_000
# Weights of the averaged module, 64 MiB: trained candidates beyond it are left out.
MOST_WEIGHTS = 2**23
# Between which the temperature is sought: an average may be made less sure, never more, since on small tables that are
# nearly free of errors the held-out rows would ask for it and the next error be paid dearly.
TEMPERATURES = (1.0, 3.0)

Family = Trained | Sums | Modes


@dataclass(frozen=True, eq=False)
class Selected:
    """The averaged module and what goes with it."""

    module: ResTT
    encoding: Encoding
    target: Labels
    settings: Settings
    candidates: dict[str, tuple[float, float]]  # log-loss on held-out rows, share in the average
    loss: float  # that of the average


def suffices(given: Examples, parameters: ResTTClassifier) -> bool:
    """Whether columns are not too many, and two classes have rows enough, more than one each, to judge models by."""
    columns = given.table.width
    if columns > MOST_COLUMNS or (columns > MOST_TRAINED_COLUMNS and len(given) * columns > MOST_ENTRIES):
        return False
    merged = Merged.of(given, parameters, FOLDS)
    counts = np.bincount(merged.classes, merged.pieces)
    return bool((counts > 1).sum() > 1 and counts[counts > 1].sum() >= FEWEST_ROWS)


def select(given: Examples, parameters: ResTTClassifier, target: Labels, seed: int) -> Selected:
    """The average of candidates with the least log-loss on held-out rows."""
    quick = parameters.effort == "quick"
    folds = QUICK_FOLDS if quick else FOLDS
    merged = Merged.of(given, parameters, folds)
    rng = np.random.default_rng(seed)
    columns, order = merged.columns, merged.order
    levels = [None if columns[index].levels is None else columns[index].states for index in order]
    sites = fit_sites(merged.table, merged.weights, levels, FINE_KNOTS, average=False)
    each = np.repeat(np.arange(len(merged.classes)), merged.pieces)
    table, classes = merged.table[each], merged.classes[each]
    rows = ClassRows(
        sites,
        tuple(site.vectors(column) for site, column in zip(sites, table.T, strict=True)),
        classes,
        target.row_weights(target.classes[classes], (merged.weights / merged.pieces)[each]),
        target.initial_bias().numpy(),
        stratified_folds(merged.classes, folds, rng, merged.pieces),
        None if isinstance(parameters.bond_dim, str) else int(parameters.bond_dim),
    )
    settings = settle(
        len(rows),
        sum(site.width for site in sites),
        rows.bond or BOND,
        folds,
        device=parameters.device,
        precision="auto",
        batch_size=len(rows),
        epochs=STEPS,
    )
    families = _families(rows, table, settings, rng, seed, quick=quick)
    weights, temperature, loss = _chosen(rows, families)
    hats, shift, scale = hat_map(sites)
    encoding = Encoding(columns, order, hats, shift, scale, shift.clone(), None)
    return Selected(
        _averaged(_members(families, weights), settings),
        with_site_means(encoding, merged.numbers, given.weights),
        replace(target, temperature=temperature),
        settings,
        _losses_and_shares(rows, families, weights),
        loss,
    )


def _families(
    rows: ClassRows, table: np.ndarray, settings: Settings, rng: np.random.Generator, seed: int, *, quick: bool
) -> list[Family]:
    """All candidates that the budget has room for."""
    families: list[Family] = []
    lines = line_view(rows.sites, constant=False)
    slopes = float(sum(lines.widths)) * rows.classes
    most = rows.bond or MOST_BOND
    if min(rows.classes, sum(lines.widths)) <= most and len(rows) * slopes * FOLDS * LINE_PASSES <= LINE_WORK:
        families.append(line_candidates(rows, centred(lines, rows.states, rows.weights)))
    if not quick and rows.classes <= most and len(rows.sites) <= MOST_MODE_COLUMNS:
        families += mode_candidates(rows, rng)
    if families and len(rows.sites) > MOST_TRAINED_COLUMNS:
        return families
    views = [
        line_view(rows.sites, constant=True, furthest=FURTHEST),
        hat_view(rows.sites, list(table.T), rows.states, rows.weights, KNOTS),
    ]
    works = [_work(rows, view) for view in views]
    kept: list[list[float]] = [[], []]
    spent = 0.0
    for pair in list(zip(TRAINED_LINE_PENALTIES, TRAINED_HAT_PENALTIES, strict=True))[: 1 if quick else None]:
        for own, penalty, work in zip(kept, pair, works, strict=True):
            # The cheapest is tried where there is no other candidate, whatever the size.
            if spent + work <= BUDGET or not (families or any(kept)):
                own.append(penalty)
                spent += work
    for view, penalties in zip(views, kept, strict=True):
        if penalties:
            families.append(train_candidates(rows, view, penalties, settings, seed))
    return families


def _work(rows: ClassRows, view: View) -> float:
    """Multiplications of a candidate's training: the chain's, and those of its last site with all classes."""
    bond = rows.bond or BOND
    products = sum(view.widths) * bond**2 + max(view.widths) * bond * rows.classes
    return float(len(rows)) * products * FOLDS * STEPS


def _chosen(rows: ClassRows, families: Sequence[Family]) -> tuple[list[np.ndarray], float, float]:
    """The weights of each family's candidates, the temperature of the average, and its log-loss."""
    judged = rows.folds >= 0
    logits = np.concatenate([family.held_out[:, judged] for family in families])
    numbers, weights = rows.numbers[judged], rows.weights[judged]
    doubt = doubts(logits[log_loss(logits, numbers, weights).argmin()], numbers)
    found = greedy_weights(logits, numbers, weights, doubt=doubt)
    average = np.tensordot(found, logits, 1)
    temperature = fitted_temperature(average, numbers, weights, TEMPERATURES, doubt)
    loss = float(log_loss(average / temperature, numbers, weights))
    return np.split(found, np.cumsum([len(family.held_out) for family in families])[:-1]), temperature, loss


def _losses_and_shares(
    rows: ClassRows, families: Sequence[Family], weights: Sequence[np.ndarray]
) -> dict[str, tuple[float, float]]:
    judged = rows.folds >= 0
    found: dict[str, tuple[float, float]] = {}
    for family, shares in zip(families, weights, strict=True):
        losses = log_loss(family.held_out[:, judged], rows.numbers[judged], rows.weights[judged])
        found.update(zip(family.names, zip(losses.tolist(), shares.tolist(), strict=True), strict=True))
    return found


def _members(families: Sequence[Family], weights: Sequence[np.ndarray]) -> list[Member]:
    """All members, without the trained ones of least share where the module would become too large."""
    pairs = list(zip(families, weights, strict=True))
    members = [member for family, shares in pairs for member in family.members(shares)]
    members.sort(key=lambda member: member.share, reverse=True)
    while len(members) > 1 and _size(members) > MOST_WEIGHTS:
        members.pop(max(range(len(members)), key=lambda place: (members[place].module.runs, place)))
    return members


def _size(members: Sequence[Member]) -> int:
    """Weights of the averaged module."""
    widths = [matrix.shape[0] for matrix in members[0].view.matrices]
    bond = max(member.module.bond_dim for member in members)
    return sum(member.module.runs or 1 for member in members) * len(widths) * max(widths) * bond**2


@torch.no_grad()
def _averaged(members: Sequence[Member], settings: Settings) -> ResTT:
    """The members as runs of one module over the whole states, each scaled so that the plain mean is the average."""
    bond = max(member.module.bond_dim for member in members)
    parts = [rewritten(member.module, member.view, bond) for member in members]
    counts = [len(part.first) for part in parts]
    shares = torch.tensor([member.share for member in members], dtype=torch.float64)
    scales = sum(counts) * shares / shares.sum() / torch.tensor(counts)
    each = scales.repeat_interleave(torch.tensor(counts))  # S
    like = parts[0]
    module = ResTT(
        like.sites,
        list(like.feature_dims),
        bond,
        like.outputs,
        bias=True,
        runs=sum(counts),
        dtype=settings.dtype,
        device=settings.device,
    )
    last = ("first", "bias") if like.sites == 1 else ("last_chain", "last_linear", "last_skip", "bias")
    for name, parameter in module.named_parameters():
        stacked = torch.cat([part.get_parameter(name) for part in parts])
        parameter.copy_(stacked * each.view(-1, *[1] * (stacked.dim() - 1)) if name in last else stacked)
    return module
