"""Classes of a table by an average of residual trains, weighted by their log-loss on rows that they have not seen.

Candidates (:mod:`~restt.estimators.logistic`, :mod:`~restt.estimators.processes`,
:mod:`~restt.estimators.candidates`) are fitted to the rows outside each of five folds, averaged greedily by the
log-loss of the rows inside, and put side by side in one module whose runs' plain mean is the average.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np
import torch

from restt.estimators.averaging import doubts, fitted_temperature, greedy_weights, log_loss
from restt.estimators.candidates import ClassRows, Member, Trained, stratified_folds, train_candidates
from restt.estimators.class_settings import ClassSettings
from restt.estimators.encoding import Encoding, with_site_means
from restt.estimators.gradient import Examples
from restt.estimators.logistic import Logistic, Shares, logistic_candidates
from restt.estimators.merged import Merged
from restt.estimators.processes import Modes, learn_processes, process_candidates, relevance
from restt.estimators.settings import Settings, settle
from restt.estimators.targets import Labels
from restt.estimators.views import View, centred, hat_view, line_view, rewritten
from restt.module import ResTT
from restt.prior import Settings as PriorSettings
from restt.prior.gp import Process
from restt.prior.sites import fit_sites, hat_map, rows_of

if TYPE_CHECKING:
    from restt.estimators.classifier import ResTTClassifier

# Trains over more columns explode or learn nothing; the regressions do not mind, while all states fit in memory.
MOST_TRAINED_COLUMNS, MOST_COLUMNS, MOST_ENTRIES = 500, 5000, 2_500_000
# Between which the temperature is sought: an average may be made less sure, never more, since on small tables that are
# nearly free of errors the held-out rows would ask for it and the next error be paid dearly.
TEMPERATURES = (1.0, 3.0)

Family = Trained | Logistic | Modes | Shares


@dataclass(frozen=True, eq=False)
class Selected:
    """The averaged module and what goes with it."""

    module: ResTT
    encoding: Encoding
    target: Labels
    settings: Settings
    candidates: dict[str, tuple[float, float]]  # log-loss on held-out rows, share in the average
    loss: float  # that of the average
    rounding_error: float  # root mean square by which rounding moved its logits on the rows


def suffices(given: Examples, parameters: ResTTClassifier) -> bool:
    """Whether columns are not too many, and two classes have rows enough, more than one each, to judge models by."""
    columns = given.table.width
    if columns > MOST_COLUMNS or (columns > MOST_TRAINED_COLUMNS and len(given) * columns > MOST_ENTRIES):
        return False
    settings = ClassSettings.of_effort(parameters.effort)
    merged = Merged.of(given, parameters, settings.folds)
    counts = np.bincount(merged.classes, merged.pieces)
    return bool((counts > 1).sum() > 1 and counts[counts > 1].sum() >= settings.fewest_rows)


def select(given: Examples, parameters: ResTTClassifier, target: Labels, seed: int) -> Selected:
    """The average of candidates with the least log-loss on held-out rows."""
    given_rows, table, merged = _read(given, parameters, target, seed)
    own = given_rows.settings
    processes: tuple[Process, ...] = ()
    if len(given_rows.sites) <= MOST_TRAINED_COLUMNS:
        processes = learn_processes(given_rows, PriorSettings.of_effort(parameters.effort))
    order = _site_order(given_rows, processes)
    rows = given_rows.ordered(order)
    settings = settle(
        len(rows),
        sum(site.width for site in rows.sites),
        rows.bond or own.hat_bond,
        own.folds,
        device=parameters.device,
        precision="auto",
        batch_size=len(rows),
        epochs=own.steps,
    )
    solved = process_candidates(given_rows, processes, order) if processes else []
    families = _families(rows, table[:, order], solved, settings, seed)
    weights, temperature, loss = _chosen(rows, families)
    hats, shift, scale = hat_map(rows.sites)
    encoding = Encoding(merged.columns, order, hats, shift, scale, shift.clone(), None)
    members = _members(rows, families, weights)
    return Selected(
        _averaged(rows, members, settings),
        with_site_means(encoding, merged.numbers, given.weights),
        replace(target, temperature=temperature),
        settings,
        _losses_and_shares(rows, families, weights),
        loss,
        sum(member.share * member.error for member in members) / sum(member.share for member in members),
    )


def _read(
    given: Examples, parameters: ResTTClassifier, target: Labels, seed: int
) -> tuple[ClassRows, np.ndarray, Merged]:
    """Rows in an order of their own, their table (B, C), and what they were merged from."""
    own = ClassSettings.of_effort(parameters.effort)
    merged = Merged.of(given, parameters, own.folds, seed)
    levels = [None if column.levels is None else column.states for column in merged.columns]
    sites = fit_sites(merged.table, merged.weights, levels, own.knots, average=False)
    each = np.repeat(np.arange(len(merged.classes)), merged.pieces)
    table, classes = merged.table[each], merged.classes[each]
    rows = ClassRows(
        sites,
        tuple(site.vectors(column) for site, column in zip(sites, table.T, strict=True)),
        rows_of(sites, table),
        classes,
        target.row_weights(target.classes[classes], (merged.weights / merged.pieces)[each]),
        target.initial_bias().numpy(),
        stratified_folds(merged.classes, own.folds, merged.pieces),
        own,
        None if isinstance(parameters.bond_dim, str) else int(parameters.bond_dim),
    )
    return rows, table, merged


def _site_order(rows: ClassRows, processes: Sequence[Process]) -> tuple[int, ...]:
    """Columns by falling relevance, and those of one value after the first: trained sites are the same without them."""
    varying = set(rows.varying)
    sizes = relevance(processes) if processes else np.zeros(len(rows.sites))
    first = [n for n in np.argsort(-sizes, kind="stable").tolist() if n in varying]
    return tuple(first[:1] + [n for n in range(len(sizes)) if n not in varying] + first[1:])


def _families(
    rows: ClassRows, table: np.ndarray, solved: Sequence[Modes], settings: Settings, seed: int
) -> list[Family]:
    """All candidates that the budget has room for."""
    own = rows.settings
    families: list[Family] = [Shares.of(rows), *solved]
    lines = line_view(rows.sites, constant=False)
    slopes = float(sum(lines.widths)) * rows.classes
    most = rows.bond or own.largest_bond
    work = len(rows) * slopes * own.folds * own.line_passes
    if min(rows.classes, sum(lines.widths)) <= most and work <= own.line_work:
        families.append(logistic_candidates(rows, centred(lines, rows.states, rows.weights)))
    if len(families) > 1 and len(rows.sites) > MOST_TRAINED_COLUMNS:
        return families
    places = _trained_places(rows)
    views = [
        line_view(rows.sites, constant=True, furthest=own.furthest).at(places),
        hat_view(rows.sites, list(table.T), rows.states, rows.weights, own.hat_knots).at(places),
    ]
    bonds = [rows.bond or own.line_bond, rows.bond or own.hat_bond]
    works = [_work(rows, view, bond) for view, bond in zip(views, bonds, strict=True)]
    kept: list[list[float]] = [[], []]
    spent = 0.0
    for pair in zip_longest(own.line_penalties, own.hat_penalties):
        for chosen, penalty, work in zip(kept, pair, works, strict=True):
            # The cheapest is tried where there is no other candidate, whatever the size.
            if penalty is not None and (spent + work <= own.trained_work or not (len(families) > 1 or any(kept))):
                chosen.append(penalty)
                spent += work
    for view, penalties, bond in zip(views, kept, bonds, strict=True):
        if penalties:
            families.append(train_candidates(rows, view, penalties, bond, settings, seed))
    return families


def _trained_places(rows: ClassRows) -> tuple[int, ...]:
    """Sites that vary, and the first and the last one, which a train ends in."""
    return tuple(sorted({0, *rows.varying, len(rows.sites) - 1}))


def _work(rows: ClassRows, view: View, bond: int) -> float:
    """Multiplications of a candidate's training: the chain's, and those of its last site with all classes."""
    products = sum(view.widths) * bond**2 + max(view.widths) * bond * rows.classes
    return float(len(rows)) * products * rows.settings.folds * rows.settings.steps


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


def _members(rows: ClassRows, families: Sequence[Family], weights: Sequence[np.ndarray]) -> list[Member]:
    """All members, without the trained ones of least share where the module would become too large."""
    pairs = list(zip(families, weights, strict=True))
    members = [member for family, shares in pairs for member in family.members(shares)]
    members.sort(key=lambda member: member.share, reverse=True)
    while len(members) > 1 and _size(rows, members) > rows.settings.most_weights:
        members.pop(max(range(len(members)), key=lambda place: (members[place].module.runs, place)))
    return members


def _size(rows: ClassRows, members: Sequence[Member]) -> int:
    """Weights of the averaged module."""
    widths = [site.width for site in rows.sites]
    bond = max(member.module.bond_dim for member in members)
    return sum(member.module.runs or 1 for member in members) * len(widths) * max(widths) * bond**2


@torch.no_grad()
def _averaged(rows: ClassRows, members: Sequence[Member], settings: Settings) -> ResTT:
    """The members as runs of one module over the whole states, each scaled so that the plain mean is the average."""
    bond = max(member.module.bond_dim for member in members)
    widths = [site.width for site in rows.sites]
    parts = [rewritten(member.module, member.view, widths, bond) for member in members]
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
