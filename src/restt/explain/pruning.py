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
from restt.explain.dense_moments import moment_sweeps, total_variance, transfer_left, whitened, whitening
from restt.explain.dense_train import centred, merged
from restt.explain.gram import Gram
from restt.explain.orders import spectrum_of
from restt.explain.residual_form import as_residual, distance, rounded, unwhitened
from restt.explain.subject import Subject
from restt.explain.tables import Records
from restt.module import ROLES, ResTT
from restt.topology import Topology

PRUNING_METHODS = ("auto", "bond", "topology")
# Directions that a constant slice loses come back at this share of the tolerance, the first that costs little enough.
FLOORS = (0.3, 0.03, 0.003)
# Bonds of the dense train that takes the place of diagonal cores, the first that is close enough.
BONDS = (16, 48, 128)
# Rows on which the forward pass of a rewritten train is compared with its cores.
PROBES = 32


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
    dropped: tuple[tuple[int, str], ...]  # (site from 0, "chain" | "linear" | "skip")

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
    >>> found = prune(large, tolerance=1e-6)
    >>> found.module.bond_dim, found.error < 1e-6
    (3, True)
    """
    tolerance = check_positive("tolerance", tolerance)
    check_choice("way", way, PRUNING_METHODS)
    subject = Subject.of(model).require_module()
    bare = Subject.of(subject.module)  # the module's own outputs, which the smaller one must give
    work = _Work.of(bare, *_moments(subject, background), tolerance, runs=subject.module.runs)
    found: list[tuple[ResTT | DiagonalTT, str, tuple[tuple[int, str], ...]]] = [(subject.module, "none", ())]
    if subject.module.sites > 1 and way in ("auto", "bond"):
        found += [(module, "bond", ()) for module in work.smaller_bond()]
    if isinstance(subject.module, ResTT) and subject.module.sites > 1 and way in ("auto", "topology"):
        found += [(module, "topology", dropped) for module, dropped in work.smaller_topology()]
    module, taken, dropped = min(found, key=lambda candidate: _size(candidate[0]))
    bare_model = isinstance(model, (ResTT, DiagonalTT))
    original = model if bare_model else model.module_
    errors = work.lost
    if taken == "none":
        module, errors = original, torch.zeros_like(errors)
    else:
        assert isinstance(module, ResTT)
        errors = work.errors(module)
        module = module.to(original.dtype).requires_grad_(True)
    return Pruned(
        module if bare_model else _refitted(model, module),
        module,
        taken,
        float(errors.norm() / work.spread),
        errors,
        _size(original),
        _size(module),
        dropped,
    )


def _size(module: ResTT | DiagonalTT) -> int:
    return module.num_parameters() * (module.runs or 1)


def _moments(subject: Subject, background: Any) -> tuple[Tensor, Tensor]:
    if background is not None or getattr(subject.estimator, "site_covariances_", None) is not None:
        return subject.moments(background)
    module = subject.module
    widths = torch.tensor(module.feature_dims)
    real = (torch.arange(module.feature_dim) < widths[:, None]).double()
    size = 1.0 if isinstance(module, DiagonalTT) else module.second_moment
    share = torch.as_tensor(size, dtype=torch.float64).cpu() / widths
    covariances = torch.diag_embed(real * share[:, None]).to(subject.device)
    return covariances.new_zeros(covariances.shape[:2]), covariances


@dataclass(frozen=True, eq=False)
class _Work:
    """One model to be pruned, as a whitened train, and the distribution under which errors count."""

    subject: Subject
    means: Tensor  # (N, I)
    covariances: Tensor  # (N, I, I)
    tolerance: float
    runs: int | None
    train: list[Tensor]  # whitened
    unmixes: list[Tensor]
    spread: Tensor  # () root of the summed variance of the outputs
    lost: Tensor  # (O,) distance of the whitened train from the model

    @classmethod
    def of(cls, subject: Subject, means: Tensor, covariances: Tensor, tolerance: float, runs: int | None) -> _Work:
        if isinstance(subject.module, DiagonalTT):
            train, lost = _dense(subject, means, covariances, tolerance)
            unmixes = whitening(covariances)[1]
        else:
            train, unmixes = whitened(merged(centred(subject.cores(), means)), covariances)
            lost = train[-1].new_zeros(subject.module.outputs)
        spread = total_variance(train).sum().sqrt()
        if not bool(spread > 0):
            raise ValueError("model must vary over the background to be pruned, got the same outputs for all rows")
        return cls(subject, means, covariances, tolerance, runs, train, unmixes, spread, lost)

    def errors(self, module: ResTT) -> Tensor:  # (O,)
        """Root mean square difference of each output, exact where nothing was lost before."""
        other = Subject.of(module)
        return self.lost + distance(
            self.train, whitened(merged(centred(other.cores(), self.means)), self.covariances)[0]
        )

    def accepts(self, module: ResTT) -> bool:
        error = float(self.errors(module).norm() / self.spread)
        return math.isfinite(error) and error <= self.tolerance

    def smaller_bond(self) -> list[ResTT]:
        """The residual train of the smallest bond that is close enough, if any is smaller than the model."""
        module = self.subject.module
        for bond in range(1, max(core.shape[-1] for core in self.train[:-1]) + 1):
            train = rounded(self.train, bond)
            if float((self.lost + distance(self.train, train)).norm() / self.spread) > self.tolerance:
                continue
            cores = unwhitened(train, self.unmixes, self.means)
            for floor in FLOORS:
                made = as_residual(cores, module, self.runs, floor * min(self.tolerance, 1.0))
                if _size(made) >= _size(module):
                    return []
                if self.accepts(made) and self._sound(made):
                    return [made]
        return []

    def _sound(self, module: ResTT) -> bool:
        """True where the module's forward pass agrees with its cores.

        A train that had to divide by tiny singular values has huge weights that cancel.
        """
        generator = torch.Generator().manual_seed(0)
        white = torch.randn(PROBES, *self.means.shape, generator=generator, dtype=torch.float64).to(self.means)
        values, directions = torch.linalg.eigh(self.covariances)
        x = self.means + torch.einsum("bnj,nij,nj->bni", white, directions, values.clamp(min=0).sqrt())
        subject = Subject.of(module)
        gap = subject.decide(x) - spectrum_of(subject, x, self.means, subject.module.sites).sum(dim=1)
        return float(gap.abs().max()) <= 1e-3 * self.tolerance * float(self.spread)

    def smaller_topology(self) -> list[tuple[ResTT, tuple[tuple[int, str], ...]]]:
        """The longest list of connections, cheapest first, that can be dropped together."""
        ranked = [drop for _, drop in sorted(self._costs())]
        assert isinstance(self.subject.module, ResTT)
        fits, fails = 0, len(ranked) + 1
        best: list[tuple[ResTT, tuple[tuple[int, str], ...]]] = []
        while fails - fits > 1:
            middle = (fits + fails) // 2
            module = _without(self.subject.module, ranked[:middle])
            if self.accepts(module):
                fits, best = middle, [(module, tuple(ranked[:middle]))]
            else:
                fails = middle
        return best

    def _costs(self) -> list[tuple[float, tuple[int, str]]]:
        """Squared error of dropping each connection alone: a train that differs at one site, between two moments."""
        module, (left, right) = self.subject.module, moment_sweeps(self.train)
        assert isinstance(module, ResTT)
        costs = []
        for kind in ("chain", "linear", "skip"):
            drops = [(site, kind) for site in range(1, module.sites) if _has(module.topology, site, kind)]
            # A core depends on its own site's connections alone, so one copy without any of the kind serves all.
            other = Subject.of(_without(module, drops))
            train = whitened(merged(centred(other.cores(), self.means)), self.covariances)[0]
            for site, _ in drops:
                lost = transfer_left(left[site], self.train[site] - train[site])
                costs.append((float(torch.einsum("ab,dab->", lost, right[site + 1])), (site, kind)))
        return costs


def _dense(
    subject: Subject, means: Tensor, covariances: Tensor, tolerance: float
) -> tuple[list[Tensor], Tensor]:  # N of (left, 1+K, right), (O,)
    """Diagonal cores as a whitened dense train, well within the tolerance if a bond of ours is, and its error."""
    gram = subject.train(means).moments(covariances)
    assert isinstance(gram, Gram)
    states = len(gram.weights) + 1
    spread = float(gram.variances(1)[0].sum().sqrt())
    for bond in (states,) if states <= BONDS[-1] else BONDS:
        train, lost = gram.compressed(bond, 0.0 if bond == states else 0.1 * tolerance * spread)
        if float(lost.norm()) <= 0.3 * tolerance * spread:
            break
    return train, lost


def _has(topology: Topology, site: int, kind: str) -> bool:
    """True where a site has a connection of this kind that can be dropped: its core, its entry, its full skip."""
    if kind == "chain":
        return topology.chains[site - 1]
    if kind == "linear":
        return topology.linears[site - 1]
    if site == topology.sites - 1:  # W(N,3) also leads the states that left earlier to the output
        return topology.ends_with_skip and not topology.has_output_skip
    return topology.skips[site - 1] == "full"


def _without(module: ResTT, drops: list[tuple[int, str]]) -> ResTT:
    """A copy of the module with fewer connections."""
    topology = module.topology
    edits = {"chain": Topology.without_chain, "linear": Topology.without_linear, "skip": Topology.without_skip}
    for site, kind in drops:
        topology = edits[kind](topology, site + 1)
    made = ResTT(
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
        if getattr(made, role) is not None:
            getattr(made, role).copy_(getattr(module, role))
    return made


def _refitted(estimator: Any, module: ResTT) -> Any:
    """A copy of a fitted estimator with another module, and the parameters that describe it."""
    made = copy.copy(estimator)
    made.module_ = module
    changed = {"bond_dim": module.bond_dim, "runs": module.runs, "topology": module.topology}
    for name in changed.keys() & made.get_params(deep=False).keys():
        setattr(made, name, changed[name])
    return made
