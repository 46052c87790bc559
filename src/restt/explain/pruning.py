"""A smaller model that does nearly the same, and exactly what that costs."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from restt._common.errors import check_choice, check_positive
from restt.diagonal import DiagonalTT
from restt.explain.dense import DenseMoments, DenseTrain, transfer_left
from restt.explain.gram import Gram
from restt.explain.residual_form import as_residual, distance, rounded
from restt.explain.subject import Subject
from restt.explain.sweeps import whitening
from restt.explain.tables import Records
from restt.module import ROLES, ResTT
from restt.prior.rounding import round_products
from restt.topology import Topology

PRUNING_METHODS = ("auto", "bond", "topology")
Drop = tuple[int, str]  # a site from 0, "chain" | "linear" | "skip"


@dataclass(frozen=True)
class PruningSettings:
    """Numbers behind a smaller bond."""

    # Directions that a constant slice loses come back at this share of the tolerance, the first that costs little.
    floors: tuple[float, ...] = (0.3, 0.03, 0.003)
    largest_bond: int = 128  # of the dense train that takes the place of diagonal cores
    probes: int = 32  # rows on which the forward pass of a rewritten train is compared with its cores


SETTINGS = PruningSettings()


@dataclass(frozen=True, eq=False, repr=False)
class Pruned(Records):
    """A model of fewer parameters, or the one given where none was found.

    ``error`` is the root mean square difference of the two over the background, in standard deviations of the model's
    outputs; ``error_by_output`` (O,) the same difference in the module's own units. Of a train with diagonal cores that
    was too large for exact dense ones it is an upper bound.
    """

    model: Any  # a restt.ResTT, or an estimator where one was given
    module: ResTT | DiagonalTT
    way: str  # "bond", "topology", or "none"
    error: float
    error_by_output: Tensor
    parameters_before: int
    parameters: int
    dropped: tuple[Drop, ...]

    def _records(self) -> list[dict[str, Any]]:
        sizes = {"parameters": self.parameters, "before": self.parameters_before}
        return [{"way": self.way, **sizes, "error": self.error}]

    def _title(self) -> tuple[str, str]:
        return "Pruned model", "error in standard deviations of the outputs"


@torch.no_grad()
def prune(model: Any, tolerance: float, background: Any = None, way: str = "auto") -> Pruned:
    """The smallest model found whose predictions differ by at most ``tolerance`` standard deviations.

    Two ways. A smaller *bond*: the train, members merged, is rounded in the basis in which squared norms are variances,
    and written as a residual train again. A smaller *topology*: connections are dropped, cheapest first. The difference
    of two trains is a train, so what either costs under independent sites is computed, not estimated.

    Parameters
    ----------
    model : restt.ResTT, restt.DiagonalTT or fitted estimator
        Diagonal cores have no connections to drop: a smaller bond is all that is tried.
    tolerance : float
        Root mean square difference allowed, in standard deviations of the outputs.
    background : (M, N, I) site vectors for a module, a table for an estimator, optional
        The rows over which the difference is averaged. Without it site vectors are taken to have mean 0 and equal,
        uncorrelated entries of the ``second_moment`` that the module was made with.
    way : {"auto", "bond", "topology"}
        ``"auto"`` tries both and takes what has fewer parameters.

    Examples
    --------
    >>> import restt, torch
    >>> small = restt.ResTT(sites=6, feature_dim=2, bond_dim=2, outputs=1, dtype=torch.float64)
    >>> large = restt.ResTT(sites=6, feature_dim=2, bond_dim=8, outputs=1, dtype=torch.float64)
    >>> with torch.no_grad():  # a large model that holds a small one
    ...     for ours, theirs in zip(large.parameters(), small.parameters()):
    ...         ours.zero_()[tuple(slice(0, width) for width in theirs.shape)] = theirs
    >>> pruned = prune(large, tolerance=1e-6)
    >>> pruned.module.bond_dim, pruned.error < 1e-6
    (3, True)
    """
    tolerance = check_positive("tolerance", tolerance)
    check_choice("way", way, PRUNING_METHODS)
    subject = Subject.of(model).require_module()
    means, covariances = _moments(subject, background)
    original = Original(subject.module, means, covariances, tolerance)
    candidates: list[tuple[ResTT | DiagonalTT, str, tuple[Drop, ...]]] = [(subject.module, "none", ())]
    if subject.sites > 1 and way in ("auto", "bond"):
        candidates += [(module, "bond", ()) for module in original.smaller_bond()]
    if isinstance(subject.module, ResTT) and subject.sites > 1 and way in ("auto", "topology"):
        candidates += [(module, "topology", dropped) for module, dropped in original.smaller_topology()]
    module, taken, dropped = min(candidates, key=lambda candidate: _size(candidate[0]))
    given = model if isinstance(model, (ResTT, DiagonalTT)) else model.module_
    if isinstance(module, DiagonalTT) or taken == "none":
        module, errors = given, torch.zeros_like(original.lost)
    else:
        errors = original.errors(module)
        module = module.to(given.dtype).requires_grad_(True)
    return Pruned(
        module if given is model else _with_module(model, module),
        module,
        taken,
        float(errors.norm() / original.spread),
        errors,
        _size(given),
        _size(module),
        dropped,
    )


def _size(module: ResTT | DiagonalTT) -> int:
    return module.num_parameters() * (module.runs or 1)


def _moments(subject: Subject, background: Any) -> tuple[Tensor, Tensor]:
    if background is not None or getattr(subject.estimator, "site_covariances_", None) is not None:
        means, covariances = subject.moments(background)
        assert covariances is not None
        return means, covariances
    module = subject.module
    widths = torch.tensor(module.feature_dims)
    real = (torch.arange(module.feature_dim) < widths[:, None]).double()
    size = 1.0 if isinstance(module, DiagonalTT) else module.second_moment
    share = torch.as_tensor(size, dtype=torch.float64).cpu() / widths
    covariances = torch.diag_embed(real * share[:, None]).to(subject.device)
    return covariances.new_zeros(covariances.shape[:2]), covariances


class Original:
    """A module to be pruned, as a whitened train, and the distribution under which errors count."""

    def __init__(self, module: Any, means: Tensor, covariances: Tensor, tolerance: float) -> None:
        self.module, self.means, self.covariances, self.tolerance = module, means, covariances, tolerance
        self.lost = means.new_zeros(module.outputs)  # (O,): distance of the whitened train from the module
        if isinstance(module, DiagonalTT) and module.bond_dim > SETTINGS.largest_bond:
            gram = Subject.of(module).train(means).moments(covariances)
            assert isinstance(gram, Gram)
            self.moments, self.lost = _compressed(gram, tolerance)
        else:
            self.moments = self._whitened(module)
        self.spread = self.moments.variance.sum().sqrt()  # of all outputs
        if not bool(self.spread > 0):
            raise ValueError("model must vary over the background to be pruned, got the same outputs for all rows")

    def _whitened(self, module: Any) -> DenseMoments:
        return DenseTrain(Subject.of(module).cores(), self.means).moments(self.covariances)

    def errors(self, module: ResTT) -> Tensor:  # (O,)
        """Root mean square difference of each output, exact where nothing was lost before."""
        return self.lost + distance(self.moments.train, self._whitened(module).train)

    def accepts(self, errors: Tensor) -> bool:  # (O,)
        """True where errors are within the tolerance."""
        error = float(errors.norm() / self.spread)
        return math.isfinite(error) and error <= self.tolerance

    def smaller_bond(self) -> list[ResTT]:
        """The residual train of the smallest bond that is close enough, if any is smaller than the model."""
        train = self.moments.train
        for bond in range(1, max(core.shape[-1] for core in train[:-1]) + 1):
            smaller = rounded(train, bond)
            if not self.accepts(self.lost + distance(train, smaller)):
                continue
            cores = self._unwhitened(smaller)
            for floor in SETTINGS.floors:
                residual = as_residual(cores, self.module, floor * min(self.tolerance, 1.0))
                if _size(residual) >= _size(self.module):
                    return []
                if self.accepts(self.errors(residual)) and self._is_sound(residual):
                    return [residual]
        return []

    def _unwhitened(self, train: list[Tensor]) -> list[Tensor]:  # N of (left, 1+I, right)
        """A whitened train as one over [1, x]."""
        cores = []
        for core, unmix, mean in zip(train, whitening(self.covariances)[1], self.means, strict=True):
            features = torch.einsum("ljr,ij->lir", core[:, 1:], unmix)
            constant = core[:, :1] - torch.einsum("lir,i->lr", features, mean)[:, None]
            cores.append(torch.cat([constant, features], dim=1))
        return cores

    def _is_sound(self, module: ResTT) -> bool:
        """True where the module's forward pass agrees with its cores.

        A train that had to divide by tiny singular values has huge weights that cancel.
        """
        generator = torch.Generator().manual_seed(0)
        white = torch.randn(SETTINGS.probes, *self.means.shape, generator=generator, dtype=torch.float64).to(self.means)
        values, directions = torch.linalg.eigh(self.covariances)
        away = torch.einsum("bnj,nij,nj->bni", white, directions, values.clamp(min=0).sqrt())
        subject = Subject.of(module)
        orders = subject.train(self.means).spectrum(away, subject.sites)
        gap = subject.decide(self.means + away) - orders.sum(dim=1)
        return float(gap.abs().max()) <= 1e-3 * self.tolerance * float(self.spread)

    def smaller_topology(self) -> list[tuple[ResTT, tuple[Drop, ...]]]:
        """The longest list of connections, cheapest first, that can be dropped together."""
        ranked = [drop for _, drop in sorted(self.costs())]
        fits, fails = 0, len(ranked) + 1
        while fails - fits > 1:
            middle = (fits + fails) // 2
            if self.accepts(self.errors(without(self.module, ranked[:middle]))):
                fits = middle
            else:
                fails = middle
        return [(without(self.module, ranked[:fits]), tuple(ranked[:fits]))] if fits else []

    def costs(self) -> list[tuple[float, Drop]]:
        """Squared error of dropping each connection alone: a train that differs at one site, between two moments."""
        left, right = self.moments.sweeps
        costs = []
        for kind in ("chain", "linear", "skip"):
            drops = [(n, kind) for n in range(1, self.module.sites) if _has(self.module.topology, n, kind)]
            # A core depends on its own site's connections alone, so one copy without any of the kind serves all.
            other = self._whitened(without(self.module, drops)).train
            for site, _ in drops:
                lost = transfer_left(left[site], self.moments.train[site] - other[site])
                costs.append((float(torch.einsum("ab,dab->", lost, right[site + 1])), (site, kind)))
        return costs


def _compressed(gram: Gram, tolerance: float) -> tuple[DenseMoments, Tensor]:  # its distance by output, (O,)
    """A sum of products as a whitened dense train of bounded bond, closer than a tenth of the tolerance if it can be.

    The distance is the root of E(f - g)² = E f² - 2 E f g + E g²: below 1e-8 of f it is rounding.
    """
    spread = float(gram.variance.sum().sqrt())
    weights = torch.cat([gram.weights, gram.constant[None]])
    absent = torch.cat([gram.absent, torch.ones_like(gram.absent[:1])])
    factors = []
    for n in range(gram.sites):
        features = gram.features(n, slice(None))
        features = torch.cat([features, torch.zeros_like(features[:1])])
        factors.append(torch.cat([absent[:, n, None], features], 1))
    ones = [torch.ones_like(factor[0]) for factor in factors]
    cores, _ = round_products(weights, factors, ones, SETTINGS.largest_bond, 0.1 * tolerance * spread)
    train = [core.to(weights) for core in cores]
    state, own = weights.new_ones(len(weights), 1), weights.new_ones(1, 1)
    for core, factor in zip(train, factors, strict=True):
        state = torch.einsum("jl,ji,lir->jr", state, factor, core)
        own = transfer_left(own, core)
    mean = gram.absent.prod(1) @ gram.weights + gram.constant
    square = gram.variance + mean.square()
    lost = (square - 2 * (state * weights).sum(0) + own.diagonal()).clamp(min=0).sqrt()
    return DenseMoments(train), lost


def _has(topology: Topology, site: int, kind: str) -> bool:
    """True where a site has a connection of this kind that can be dropped: its core, its entry, its full skip."""
    if kind == "chain":
        return topology.chains[site - 1]
    if kind == "linear":
        return topology.linears[site - 1]
    if site == topology.sites - 1:  # W(N,3) also leads the states that left earlier to the output
        return topology.ends_with_skip and not topology.has_output_skip
    return topology.skips[site - 1] == "full"


def without(module: ResTT, drops: list[Drop]) -> ResTT:
    """A copy of the module with fewer connections."""
    topology = module.topology
    edits = {"chain": Topology.without_chain, "linear": Topology.without_linear, "skip": Topology.without_skip}
    for site, kind in drops:
        topology = edits[kind](topology, site + 1)
    smaller = ResTT(
        module.sites,
        list(module.feature_dims),
        module.bond_dim,
        module.outputs,
        topology,
        second_moment=module.second_moment,
        bias=module.bias is not None,
        runs=module.runs,
        dtype=module.first.dtype,
        device=module.first.device,
    )
    for role in (*ROLES, "bias"):
        if getattr(smaller, role) is not None:
            getattr(smaller, role).copy_(getattr(module, role))
    return smaller


def _with_module(estimator: Any, module: ResTT | DiagonalTT) -> Any:
    """A copy of a fitted estimator with another module, and the parameters that describe it."""
    pruned = copy.copy(estimator)
    pruned.module_ = module
    changed = {"bond_dim": module.bond_dim, "runs": module.runs, "topology": module.topology}
    for name in changed.keys() & pruned.get_params(deep=False).keys():
        setattr(pruned, name, changed[name])
    return pruned
