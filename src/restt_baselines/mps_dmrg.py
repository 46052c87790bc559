"""A matrix product state optimised by sweeps with conjugate gradients and singular values (mps-dmrg).

E. M. Stoudenmire, D. J. Schwab, "Supervised learning with tensor networks" (2016, Sec. 4). The weights of f_o(x) = W_o
· x(1) ⊗ … ⊗ x(N) are a train in mixed canonical form: cores left of the centre are isometries from the left, cores
right of it isometries from the right, and the centre carries the label index. A step contracts the centre with its
neighbour to a bond tensor, lowers the quadratic cost of all rows in that tensor alone by conjugate gradients, and
splits it by a singular value decomposition, which leaves an isometry behind and moves the label one site on. With the
environments of the bond, l(b) of the sites left of it and r(b) of those right of it, the cost

    C = ½ Σ_b |t(b) − f(b)|² + ½ penalty · B · |bond|²,     f(b)_o = (l ⊗ x(n))ᵀ bond_o (x(n+1) ⊗ r)

is quadratic, so that conjugate gradients need no line search and no step raises C. Isometries shorten the product
states of the rows, by orders of magnitude over hundreds of sites. Every site therefore has a gain, the number that
brings its environment back to mean square 1 over the training rows; it belongs to the function, and the cores stay
isometries.

The angle. At the source's π/2 no two images are neighbours: an environment of bond r holds little of most images, and
sweeps gain slowly: 50,000 images reach 81, 90 and 92 % of held-out ones after 1, 2 and 3 sweeps. At 0.8 they reach 97 %
at bond 60 in the first sweep. The source's public code has [1, x/4] in place of the angle (``angle=None``), which turns
a site vector by 0.245 at most, and warns that projections by the angle π/2 vanish.

The penalty, which also keeps the discarded weight small: 1e-3 for a few thousand rows, less with more of them. The
start: the source's code sums random training images; here the cores span the training images' leading density matrices.
Another departure from that code, not from its paper: there the label stays at the middle site.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from restt._common.errors import check_int, check_positive
from restt.features.formulas import on_the_sphere
from restt.train.data import FeatureMap
from restt_baselines.swept import Sweep, SweptClassifier

# Numbers held at once for the products of errors and right environments: 256 MiB of float32.
PRODUCTS_AT_ONCE = 2**26


def split(matrix: Tensor, bond_dim: int, cutoff: float) -> tuple[Tensor, Tensor, float]:  # (A, B) -> (A, R), (R, B)
    """Isometry, rest, and the discarded share of the squared singular values, at most ``cutoff`` where R < bond_dim.

    >>> isometry, rest, discarded = split(torch.diag(torch.tensor([3.0, 2.0, 1.0])), bond_dim=2, cutoff=0.0)
    >>> isometry.shape, rest.shape, round(discarded, 6) == round(1 / 14, 6)
    (torch.Size([3, 2]), torch.Size([2, 3]), True)
    """
    # From the Gram matrix, on the CPU: of a few hundred rows that takes milliseconds wherever the matrix is.
    wide = matrix.double()
    values, vectors = torch.linalg.eigh((wide @ wide.T).cpu())
    weights = values.flip(0).clamp(min=0)
    total = float(weights.sum())
    if total == 0:
        kept, discarded = 1, 0.0
    else:
        tails = 1 - weights.cumsum(0) / total  # what is lost with 1, 2, … values kept
        kept = min(int((tails > cutoff).sum()) + 1, bond_dim, len(weights))
        discarded = max(0.0, float(weights[kept:].sum()) / total)
    isometry = vectors.flip(1)[:, :kept].to(matrix)
    return isometry, isometry.T @ matrix, discarded


@dataclass(frozen=True)
class Step:
    """The optimisation of one bond."""

    bond: int  # between this site and the next
    costs: tuple[float, ...]  # before the first step of the conjugate gradients and after each accepted one
    discarded: float
    kept: int  # the bond dimension


class LabelledTrain:
    """The train itself: cores (l, I, r), the centre (l, I, O, r), and the gain of every site.

    >>> train = LabelledTrain([torch.eye(2).view(1, 2, 1, 2), torch.eye(2).view(2, 2, 1)], [1.0, 1.0], centre=0)
    >>> train(torch.ones(2, 5, 2)).squeeze(-1)
    tensor([2., 2., 2., 2., 2.])
    """

    def __init__(self, cores: list[Tensor], gains: list[float], centre: int) -> None:
        self.cores, self.gains, self.centre = cores, gains, centre

    @property
    def bonds(self) -> list[int]:
        """Dimension of the bonds between neighbours."""
        return [core.shape[-1] for core in self.cores[:-1]]

    def __call__(self, x: Tensor) -> Tensor:  # (N, B, I) -> (B, O)
        """Outputs (B, O) of site vectors (N, B, I)."""
        left, right = _ones(x), _ones(x)
        for n in range(self.centre):
            left = self.leftward(left, x[n], n)
        for n in range(len(x) - 1, self.centre, -1):
            right = self.rightward(x[n], right, n)
        centre = self.cores[self.centre]
        seen = _outer(left, x[self.centre]) @ centre.flatten(0, 1).flatten(1)
        return torch.einsum("bor,br->bo", seen.unflatten(1, centre.shape[2:]), right)

    def leftward(self, left: Tensor, x: Tensor, site: int) -> Tensor:  # (B, l), (B, I) -> (B, r)
        """The environment of the sites up to ``site`` from that of the sites before it."""
        return (_outer(left, x) @ self.cores[site].flatten(0, 1)) * self.gains[site]

    def rightward(self, x: Tensor, right: Tensor, site: int) -> Tensor:  # (B, I), (B, r) -> (B, l)
        """The environment of the sites from ``site`` on."""
        return (_outer(x, right) @ self.cores[site].flatten(1).T) * self.gains[site]

    @property
    def device(self) -> torch.device:
        """Device of the cores."""
        return self.cores[0].device

    def to(self, device: torch.device | str) -> LabelledTrain:
        """A copy on another device."""
        return LabelledTrain([core.to(device) for core in self.cores], list(self.gains), self.centre)


@torch.no_grad()
def spanned(x: Tensor, outputs: int, bond_dim: int, rows: Tensor) -> LabelledTrain:  # (N, B, I), (K,)
    """A train whose right environments span the given rows best, and whose centre, at site 1, is zero.

    From the last site on, each core is the ``bond_dim`` leading eigenvectors of the rows' mean density matrix.
    """
    sites, _, width = x.shape
    cores: list[Tensor] = []
    gains = []
    right = _ones(x)
    for n in range(sites - 1, 0, -1):
        wide = _outer(x[n], right)
        sample = wide[rows].double()
        _, vectors = torch.linalg.eigh((sample.T @ sample).cpu())
        kept = vectors.flip(1)[:, : min(bond_dim, vectors.shape[1])].T.to(x)  # (m, I·r)
        right = wide @ kept.T
        gains.append(_gain(right))
        right = right * gains[-1]
        cores.append(kept.unflatten(1, (width, -1)))
    first = torch.zeros(1, width, outputs, right.shape[1], dtype=x.dtype, device=x.device)
    return LabelledTrain([first, *reversed(cores)], [1.0, *reversed(gains)], centre=0)


class Sweeps:
    """Optimises a train with its centre at site 1, in place; settings are those of :class:`MPSClassifier`."""

    def __init__(
        self,
        train: LabelledTrain,
        x: Tensor,  # (N, B, I)
        target: Tensor,  # (B, O)
        *,
        bond_dim: int,
        cutoff: float,
        steps: int,
        penalty: float,
    ) -> None:
        self.train, self.x, self.target = train, x, target
        self.bond_dim, self.cutoff, self.steps = bond_dim, cutoff, steps
        self.ridge = penalty * len(target)
        # One environment for each site: of the sites left of it up to the centre, of those right of it from there on.
        self._left: dict[int, Tensor] = {0: _ones(x)}
        self._right: dict[int, Tensor] = {len(x) - 1: _ones(x)}
        for n in range(len(x) - 1, 1, -1):
            self._right[n - 1] = train.rightward(x[n], self._right[n], n)

    @torch.no_grad()
    def to_the_right(self) -> Iterator[Step]:
        """One pass with the label from site 1 to site N."""
        for n in range(len(self.x) - 1):
            centre, following = self.train.cores[n], self.train.cores[n + 1]
            bond = torch.einsum("aiom,mjc->aiojc", centre, following) * self.train.gains[n + 1]
            bond, costs = self._lowered(n, bond)
            isometry, rest, discarded = split(bond.flatten(0, 1).flatten(1), self.bond_dim, self.cutoff)
            self.train.cores[n] = isometry.unflatten(0, bond.shape[:2])
            self.train.gains[n] = 1.0
            left = self.train.leftward(self._left[n], self.x[n], n)
            gain = self.train.gains[n] = _gain(left)
            self._left[n + 1] = left * gain
            centre = rest.unflatten(1, bond.shape[2:]) / gain  # (m, O, J, c)
            self.train.cores[n + 1] = centre.transpose(1, 2).contiguous()
            self.train.centre, self.train.gains[n + 1] = n + 1, 1.0
            self._right.pop(n, None)
            yield Step(n, costs, discarded, len(rest))

    @torch.no_grad()
    def to_the_left(self) -> Iterator[Step]:
        """One pass with the label from site N to site 1."""
        for n in range(len(self.x) - 2, -1, -1):
            before, centre = self.train.cores[n], self.train.cores[n + 1]
            bond = torch.einsum("aim,mjoc->aiojc", before, centre) * self.train.gains[n]
            bond, costs = self._lowered(n, bond)
            isometry, rest, discarded = split(bond.flatten(0, 2).flatten(1).T, self.bond_dim, self.cutoff)
            self.train.cores[n + 1] = isometry.T.unflatten(1, bond.shape[3:]).contiguous()
            self.train.gains[n + 1] = 1.0
            right = self.train.rightward(self.x[n + 1], self._right[n + 1], n + 1)
            gain = self.train.gains[n + 1] = _gain(right)
            self._right[n] = right * gain
            self.train.cores[n] = rest.T.unflatten(0, bond.shape[:3]) / gain
            self.train.centre, self.train.gains[n] = n, 1.0
            self._left.pop(n + 1, None)
            yield Step(n, costs, discarded, len(rest))

    def _lowered(self, site: int, bond: Tensor) -> tuple[Tensor, tuple[float, ...]]:  # (l, I, O, J, r)
        """The bond tensor after some steps of conjugate gradients, and the costs on the way."""
        left = _outer(self._left[site], self.x[site])
        right = _outer(self.x[site + 1], self._right[site + 1])
        tensor = bond.flatten(0, 1).flatten(2)  # (l·I, O, J·r)
        error = self.target - outputs_of(left, tensor, right)
        cost = self._cost(error, tensor)
        costs = [cost]
        downhill = gradient_of(left, error, right) - self.ridge * tensor
        direction, size = downhill, downhill.square().sum()
        for _ in range(self.steps):
            if float(size) == 0:
                break
            change = outputs_of(left, direction, right)
            length = size / (change.square().sum() + self.ridge * direction.square().sum())
            moved, left_over = tensor + length * direction, error - length * change
            cost = self._cost(left_over, moved)
            if not cost <= costs[-1]:  # rounding: nothing is left to gain
                break
            tensor, error = moved, left_over
            costs.append(cost)
            downhill = gradient_of(left, error, right) - self.ridge * tensor
            before, size = size, downhill.square().sum()
            direction = downhill + (size / before) * direction
        return tensor.unflatten(0, bond.shape[:2]).unflatten(3, bond.shape[3:]), tuple(costs)

    def _cost(self, error: Tensor, bond: Tensor) -> float:
        return float(0.5 * (error.double().square().sum() + self.ridge * bond.double().square().sum()))


def outputs_of(left: Tensor, bond: Tensor, right: Tensor) -> Tensor:  # (B, A), (A, O, C), (B, C) -> (B, O)
    """f(b)_o = leftᵀ bond_o right of every row."""
    flat = bond.flatten(1)
    parts = []
    for rows in _parts(left, flat.shape[1]):
        seen = (left[rows] @ flat).unflatten(1, bond.shape[1:])
        parts.append(torch.bmm(seen, right[rows].unsqueeze(2)).squeeze(2))
    return torch.cat(parts)


def gradient_of(left: Tensor, error: Tensor, right: Tensor) -> Tensor:  # (B, A), (B, O), (B, C) -> (A, O, C)
    """Σ_b left ⊗ error ⊗ right, which is minus the gradient of ½ Σ_b |error|²."""
    shape = left.shape[1], error.shape[1], right.shape[1]
    total = torch.zeros(shape[0], shape[1] * shape[2], dtype=left.dtype, device=left.device)
    for rows in _parts(left, total.shape[1]):
        total.addmm_(left[rows].T, _outer(error[rows], right[rows]))
    return total.view(shape)


def _parts(left: Tensor, width: int) -> list[slice]:
    rows = max(1, PRODUCTS_AT_ONCE // width)
    return [slice(start, start + rows) for start in range(0, len(left), rows)]


def _outer(a: Tensor, b: Tensor) -> Tensor:  # (B, A), (B, C) -> (B, A·C)
    return (a.unsqueeze(2) * b.unsqueeze(1)).flatten(1)


def _ones(x: Tensor) -> Tensor:  # (N, B, I) -> (B, 1)
    return torch.ones(x.shape[1], 1, dtype=x.dtype, device=x.device)


def _gain(environment: Tensor) -> float:  # (B, R)
    """Factor that brings the rows' mean square length to 1."""
    size = float(environment.double().square().sum(1).mean().sqrt())
    return 1 / size if size > 0 else 1.0


@dataclass(kw_only=True, eq=False, repr=False)
class MPSClassifier(SweptClassifier):
    """Parameters beyond those of :class:`restt_baselines.swept.SweptClassifier`.

    bond_dim : int
        Largest bond.
    cutoff : float
        Share of the squared singular values that a split may discard before its bond grows.
    steps : int
        Conjugate gradient steps at each bond.
    penalty : float
        Of the squared norm of the bond tensor, per row.
    start_bond, start_rows : int
        Bond of the train before the first sweep, and the random rows whose density matrices choose its cores.
    angle : float or None
        Angle between the site vectors of the two ends of a column's range. None takes [1, x/4], which the source's
        public code has.

    Attributes
    ----------
    steps_ : list of Step
        Costs, discarded weight and bond at every bond of the last sweep.
    """

    bond_dim: int = 60
    cutoff: float = 1e-10
    steps: int = 4
    penalty: float = 1e-3
    start_bond: int = 10
    start_rows: int = 2000
    angle: float | None = 0.8

    steps_: list[Step] = field(init=False)

    def feature_map(self) -> FeatureMap:
        """The map from scaled columns to site vectors."""
        return partial(_site_vectors, None if self.angle is None else check_positive("angle", self.angle))

    def start(self, x: Tensor, target: Tensor, generator: torch.Generator) -> tuple[LabelledTrain, Sweep]:
        """The untrained model and its sweep."""
        if len(x) < 2:
            raise ValueError(f"mps-dmrg has bonds between sites and needs at least 2 columns, got {len(x)}")
        start_rows = check_int("start_rows", self.start_rows, minimum=1)
        rows = torch.randperm(x.shape[1], generator=generator)[:start_rows].to(x.device)
        train = spanned(x, target.shape[1], check_int("start_bond", self.start_bond, minimum=1), rows)
        sweeps = Sweeps(
            train,
            x,
            target,
            bond_dim=check_int("bond_dim", self.bond_dim, minimum=1),
            cutoff=check_positive("cutoff", self.cutoff, allow_zero=True),
            steps=check_int("steps", self.steps, minimum=1),
            penalty=check_positive("penalty", self.penalty, allow_zero=True),
        )

        def there_and_back() -> float:
            self.steps_ = [*sweeps.to_the_right(), *sweeps.to_the_left()]
            return self.steps_[-1].costs[-1] / len(target)

        return train, there_and_back

    def work(self, columns: int, outputs: int) -> float:
        """Multiplications of one sweep for each row, about."""
        return 2.0 * columns * (2 * self.steps + 1) * outputs * (2 * self.bond_dim) ** 2


def _site_vectors(angle: float | None, values: Tensor) -> Tensor:  # (B, C) -> (N, B, 2)
    pixels = values.T.unsqueeze(-1)
    if angle is None:
        return torch.cat([torch.ones_like(pixels), pixels / 4], dim=-1)
    return on_the_sphere(pixels, angle).contiguous()
