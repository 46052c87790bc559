"""A smaller model that does nearly the same, and exactly what that costs."""

from __future__ import annotations

import copy
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from restt._common.errors import check_choice, check_positive
from restt.chain.reference import ChainWeights, role_shapes
from restt.cores import cores_of
from restt.diagonal import DiagonalTT
from restt.explain.dense import DenseMoments, DenseTrain, transfer_left
from restt.explain.subject import Subject
from restt.explain.sweeps import whitening
from restt.module import ResTT
from restt.prior.rounding import round_products
from restt.topology import Topology

Drop = tuple[int, str]  # a site from 0, "chain" | "linear" | "skip"
# Directions that a constant slice loses come back at this share of the tolerance, the first that costs little.
FLOORS: tuple[float, ...] = (0.3, 0.03, 0.003)
LARGEST_BOND = 128  # of the dense train that takes the place of diagonal cores
PROBES = 32  # rows on which the forward pass of a rewritten train is compared with its cores


@dataclass(frozen=True, eq=False)
class Pruned:
    """A model of fewer parameters, or the one given where none was found.

    ``error`` is the root mean square difference of the two over the background, in standard deviations of the model's
    outputs; ``error_by_output`` (O,) the same difference in the module's own units. Of a train with diagonal cores that
    was too large for exact dense ones it is an upper bound.
    """

    model: Any = field(repr=False)  # a restt.ResTT, or an estimator where one was given
    module: ResTT | DiagonalTT = field(repr=False)
    way: str  # "bond", "topology", or "none"
    error: float
    error_by_output: Tensor = field(repr=False)
    parameters_before: int
    parameters: int
    dropped: tuple[Drop, ...]


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
    check_choice("way", way, ("auto", "bond", "topology"))
    subject = Subject.of(model).require_module()
    module, way_taken = subject.module, "none"
    dropped: tuple[Drop, ...] = ()
    original = Original(module, *_moments(subject, background), tolerance)
    if subject.sites > 1 and way in ("auto", "bond"):
        smaller = original.smaller_bond()
        if smaller is not None:
            module, way_taken = smaller, "bond"
    if isinstance(subject.module, ResTT) and way in ("auto", "topology"):
        fewer, drops = original.smaller_topology()
        if drops and _size(fewer) < _size(module):
            module, way_taken, dropped = fewer, "topology", drops
    given = model if isinstance(model, (ResTT, DiagonalTT)) else model.module_
    errors = torch.zeros_like(original.lost)
    if way_taken == "none":
        module = given
    else:
        errors = original.errors(module)
        module = module.to(given.dtype).requires_grad_(True)
    return Pruned(
        module if given is model else _with_module(model, module),
        module,
        way_taken,
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
    module, size = subject.module, getattr(subject.module, "second_moment", 1.0)
    widths = torch.tensor(module.feature_dims)
    real = (torch.arange(module.feature_dim) < widths[:, None]).double()
    share = torch.as_tensor(size, dtype=torch.float64).cpu() / widths
    covariances = torch.diag_embed(real * share[:, None]).to(subject.device)
    return covariances.new_zeros(covariances.shape[:2]), covariances


class Original:
    """A module to be pruned, as a whitened train, and the distribution under which errors count."""

    def __init__(self, module: Any, means: Tensor, covariances: Tensor, tolerance: float) -> None:
        self.module, self.means, self.covariances, self.tolerance = module, means, covariances, tolerance
        self.lost = means.new_zeros(module.outputs)  # (O,): distance of the whitened train from the module
        if isinstance(module, DiagonalTT) and module.bond_dim > LARGEST_BOND:
            self.moments, self.lost = _compressed(Subject.of(module).train(means).moments(covariances), tolerance)
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
        return bool(errors.norm() / self.spread <= self.tolerance)

    def smaller_bond(self) -> ResTT | None:
        """The residual train of the smallest bond that is close enough, if any is smaller than the model."""
        train = self.moments.train
        for bond in range(1, max(core.shape[-1] for core in train[:-1]) + 1):
            smaller = rounded(train, bond)
            if not self.accepts(self.lost + distance(train, smaller)):
                continue
            cores = self._unwhitened(smaller)
            for floor in FLOORS:
                residual = as_residual(cores, self.module, floor * min(self.tolerance, 1.0))
                if _size(residual) >= _size(self.module):
                    return None
                if self.accepts(self.errors(residual)) and self._is_sound(residual):
                    return residual
        return None

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
        white = torch.randn(PROBES, *self.means.shape, generator=generator, dtype=torch.float64).to(self.means)
        away = white * self.covariances.diagonal(dim1=1, dim2=2).clamp(min=0).sqrt()
        subject = Subject.of(module)
        orders = subject.train(self.means).spectrum(away, subject.sites)
        gap = subject.decide(self.means + away) - orders.sum(dim=1)
        return float(gap.abs().max()) <= 1e-3 * self.tolerance * float(self.spread)

    def smaller_topology(self) -> tuple[ResTT, tuple[Drop, ...]]:
        """The module without the longest list of connections, cheapest first, that can be dropped together."""
        ranked = [drop for _, drop in sorted(self.costs())]
        counts = range(1, len(ranked) + 1)
        costly = bisect_left(
            counts, True, key=lambda count: not self.accepts(self.errors(without(self.module, ranked[:count])))
        )
        return without(self.module, ranked[:costly]), tuple(ranked[:costly])

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


def _compressed(gram: Any, tolerance: float) -> tuple[DenseMoments, Tensor]:  # its distance by output, (O,)
    """A sum of products as a whitened dense train of bounded bond, closer than a tenth of the tolerance if it can be.

    The distance is the root of E(f - g)² = E f² - 2 E f g + E g²: below 1e-8 of f it is rounding.
    """
    spread = float(gram.variance.sum().sqrt())
    weights = torch.cat([gram.weights, gram.constant[None]])
    factors = []
    for n in range(gram.sites):
        factor = torch.cat([gram.absent[:, n, None], gram.features(n, slice(None))], 1)
        factors.append(torch.cat([factor, torch.eye(1, factor.shape[1]).to(factor)]))
    ones = [torch.ones_like(factor[0]) for factor in factors]
    cores, _ = round_products(weights, factors, ones, LARGEST_BOND, 0.1 * tolerance * spread)
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


def without(module: ResTT, drops: Sequence[Drop]) -> ResTT:
    """A copy of the module with fewer connections."""
    topology = module.topology
    edits = {"chain": Topology.without_chain, "linear": Topology.without_linear, "skip": Topology.without_skip}
    for site, kind in drops:
        topology = edits[kind](topology, site + 1)
    shapes = role_shapes(topology, module.feature_dim, module.bond_dim, module.outputs)
    kept: Any = {role: None if shape is None else getattr(module.weights(), role) for role, shape in shapes.items()}
    bias = None if module.bias is None else module.bias.reshape(-1, module.outputs)
    cores = cores_of(ChainWeights(**kept, outputs=module.outputs), topology, module.feature_dims, bias)
    return _like(cores, topology, module)


def _like(cores: Sequence[Tensor], topology: str | Topology, module: ResTT | DiagonalTT) -> ResTT:
    """The module of these cores (S, left, 1+I, right), of the other's second moment and with runs where it has them."""
    made = ResTT.from_cores([core[0] for core in cores] if module.runs is None else list(cores), topology)
    if isinstance(module, ResTT):
        made.second_moment = module.second_moment
    return made


def _with_module(estimator: Any, module: ResTT | DiagonalTT) -> Any:
    """A copy of a fitted estimator with another module, and the parameters that describe it."""
    pruned = copy.copy(estimator)
    pruned.module_ = module
    changed = {"bond_dim": module.bond_dim, "runs": module.runs, "topology": module.topology}
    for name in changed.keys() & pruned.get_params(deep=False).keys():
        setattr(pruned, name, changed[name])
    return pruned


def distance(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> Tensor:  # (D,)
    """Root of E(f - g)² of each output for two whitened trains, by QR along the train of f - g.

    Orthogonal steps subtract nothing large, so differences down to rounding are seen; squared moments would stop at
    its square root.
    """
    state = ours[0].new_ones(1, 2)  # (k, both bonds)
    for core, other in zip(ours, theirs, strict=True):
        split = core.shape[0]
        one = torch.einsum("kl,ljr->kjr", state[:, :split], core)
        two = torch.einsum("kl,ljr->kjr", state[:, split:], other)
        state = torch.linalg.qr(torch.cat([one, two], dim=-1).flatten(0, 1), mode="r").R
    return (one - two).flatten(0, 1).norm(dim=0)


def rounded(train: Sequence[Tensor], bond: int) -> list[Tensor]:
    """The train with inner bonds of at most ``bond``, by singular values: the best at each cut, in squared norm."""
    cores = list(train)
    for n in range(len(cores) - 1, 0, -1):  # rows orthonormal from the right
        left, width, right = cores[n].shape
        q, r = torch.linalg.qr(cores[n].reshape(left, width * right).T)
        cores[n] = q.T.reshape(-1, width, right)
        cores[n - 1] = cores[n - 1] @ r.T
    for n in range(len(cores) - 1):
        left, width, right = cores[n].shape
        u, s, v = torch.linalg.svd(cores[n].reshape(left * width, right), full_matrices=False)
        # Half of each singular value on both sides keeps the cores of one size.
        root = s[:bond].sqrt()
        cores[n] = (u[:, :bond] * root).reshape(left, width, -1)
        cores[n + 1] = torch.einsum("kr,rjt->kjt", root[:, None] * v[:bond], cores[n + 1])
    return cores


def as_residual(
    cores: Sequence[Tensor],  # N of (left, 1+I, right), N ≥ 2, bonds that rise and then fall
    like: ResTT | DiagonalTT,
    floor: float,
) -> ResTT:
    """A residual train of the largest bond among ``cores``, with a bias, that computes what they do.

    With state s(n) = t(n) P(n), where t is the train's and G₀(n) P(n) = P(n-1), the constant slices become identities:
    s(n) = s(n-1) (1 + Σ_i x_i A_i). Then y = s - c, with c the constant part of s(1), follows the recurrence of a
    residual train with cores A_i and entries c A_i. Singular values of G₀ below ``floor`` times the largest are raised
    to it, since they must be divided by; the caller measures what that costs.
    """
    bond = max(core.shape[-1] for core in cores[:-1])
    last, widths = cores[-1], like.feature_dims
    eye = torch.eye(bond + 1, dtype=last.dtype, device=last.device)
    first = _padded(cores[0][0], 1 + widths[0], bond)
    constant, up, down = first[0], eye[:bond, :bond], eye[:bond, :bond]  # c, P(n) and its inverse
    made = [pad(first.index_fill(0, torch.zeros(1, dtype=torch.long, device=first.device), 0.0), (0, 1))[None]]
    made[0][0, 0, bond] = 1.0
    for core, width in zip(cores[1:-1], widths[1:-1], strict=True):
        u, s, v = torch.linalg.svd(_padded(core[:, 0], bond, bond))
        s = s.clamp(min=floor * float(s[0]))
        s[min(core.shape[0], core.shape[2]) :] = s[0]  # directions of the padding, which no state has
        after = (v.T / s) @ (u.T @ up)
        chain = down @ _padded(core[:, 1 : 1 + width].transpose(0, 1), bond, bond) @ after  # (I, bond, bond)
        features = pad(torch.cat([chain, (constant @ chain)[:, None]], 1), (0, 1))
        made.append(torch.cat([eye[None], features]).transpose(0, 1))
        up, down = after, down @ (u * s) @ v
    ends = torch.einsum("kl,lio->kio", down[:, : last.shape[0]], last[:, : 1 + widths[-1]])
    made.append(torch.cat([ends, torch.einsum("k,kio->io", constant, ends)[None]]))
    return _like([core[None] for core in made], "residual", like)


def _padded(matrix: Tensor, rows: int, columns: int) -> Tensor:
    return pad(matrix, (0, columns - matrix.shape[-1], 0, rows - matrix.shape[-2]))
