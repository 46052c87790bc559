"""A residual train with diagonal cores: a sum of products over sites, one state per product.

    f(x) = constant + Σ_n E_n · x(n) + Σ_j c_j Π_n φ_n(j) · x(n)

On site vectors that sum to one this is a residual train of bond J whose cores are diagonal, W(n,1)_i = diag(φ_n,i - 1),
with main effects E_n. It is what the posterior mean of a Gaussian process with a product kernel is, one state per row
and term. Factors are kept as they come: row r of R has at every site a code and a share, and

    φ_n(g, r) = (1 - share) · T_n[g, code] + share · T_n[g, code + 1]

where T_n[g] are the distinct factor vectors of one of G groups of products over the same rows; J = G·R. So with
z = T_n x(n) a state's factor is two entries of z, and a prediction costs states × sites (:mod:`restt.products`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from restt._common.errors import check_int, shown
from restt.products import Factors, sum_of_products
from restt.site_inputs import InputShape
from restt.topology import Topology

# Numbers that dense cores may have.
MOST_DENSE = 2**25
FLOATS = ("table", "share", "coefficients", "effect", "constant")


class DiagonalTT(nn.Module):
    """A residual tensor train with diagonal cores, read like a :class:`restt.ResTT`; its numbers are not trained.

    Parameters
    ----------
    tables : N of (G, M_n, I_n)
        Distinct factor vectors of each site, for each group of products.
    code : (R, N) int
        Which vector a row has at a site, 0 … M_n - 1.
    share : (R, N)
        The share of the next vector, from 0 to 1; of the last one 0.
    coefficients : (G, R, O)
    effects : N of (O, I_n), optional
        Main effects.
    constant : (O,), optional
    runs : {None, 1}
        With 1 the output has a leading axis, as that of an estimator's module.

    Examples
    --------
    >>> import torch, restt
    >>> tables = [torch.tensor([[[1.0, 2.0], [1.0, 0.0]]]), torch.tensor([[[3.0, 1.0], [0.0, 1.0]]])]
    >>> code, share = torch.tensor([[0, 0], [0, 1]]), torch.tensor([[0.5, 0.0], [0.0, 0.0]])
    >>> model = restt.DiagonalTT(tables, code, share, torch.tensor([[[1.0], [10.0]]]))
    >>> model(torch.tensor([[[1.0, 0.0], [0.0, 1.0]]]))  # 1·1·1 + 10·1·1
    tensor([[11.]])
    """

    table: Tensor  # (Σ G·M_n·I_n,)
    code: Tensor  # (R, N) int32
    share: Tensor  # (R, N)
    coefficients: Tensor  # (G, R, O)
    effect: Tensor  # (O, ΣI)
    constant: Tensor  # (O,)
    padding: Tensor | None

    def __init__(
        self,
        tables: Sequence[Tensor],
        code: Tensor,
        share: Tensor,
        coefficients: Tensor,
        effects: Sequence[Tensor] | None = None,
        constant: Tensor | None = None,
        runs: int | None = None,
    ) -> None:
        super().__init__()
        if not tables or any(table.dim() != 3 for table in tables):
            raise ValueError(f"tables must be tensors (G, M, I), one per site, got {shown(tables)}")
        self.runs = None if runs is None else check_int("runs", runs, minimum=1, maximum=1)
        self.sites, self.groups = len(tables), len(tables[0])
        self.feature_dims = tuple(table.shape[2] for table in tables)
        self.vector_counts = tuple(table.shape[1] for table in tables)  # M_n
        self.topology = Topology.residual(self.sites)
        if coefficients.dim() != 3:
            raise ValueError(f"coefficients must have shape (G, R, O), got {tuple(coefficients.shape)}")
        self.rows, self.outputs = coefficients.shape[1:]
        if effects is None:
            effects = [coefficients.new_zeros(self.outputs, width) for width in self.feature_dims]
        constant = coefficients.new_zeros(self.outputs) if constant is None else constant
        _check_shapes(tables, code, share, coefficients, effects, constant)
        parts = {"table": torch.cat([table.flatten() for table in tables]), "share": share}
        parts |= {"coefficients": coefficients, "effect": torch.cat(list(effects), 1), "constant": constant}
        for name in FLOATS:
            self.register_buffer(name, parts[name].detach().to(coefficients.dtype, copy=True).contiguous())
        self.register_buffer("code", code.detach().to(torch.int32, copy=True).contiguous())
        self._shape = InputShape(self.feature_dims)
        self.register_buffer("padding", self._shape.padding(self.device), persistent=False)

    @property
    def dtype(self) -> torch.dtype:
        """Type of the weights and of x."""
        return self.coefficients.dtype

    @property
    def device(self) -> torch.device:
        """Device of the numbers."""
        return self.coefficients.device

    @property
    def feature_dim(self) -> int:
        """The widest site's feature width I."""
        return max(self.feature_dims)

    @property
    def row_work(self) -> int:
        """About how many multiplications one row takes."""
        return self.groups * (4 * self.rows * self.sites + sum(self.vector_counts) * self.feature_dim)

    @property
    def bond_dim(self) -> int:
        """The number of products J."""
        return self.groups * self.rows

    def num_parameters(self) -> int:
        """Numbers that the function is made of, codes included."""
        return self.code.numel() + sum(getattr(self, name).numel() for name in FLOATS)

    def tables(self) -> list[Tensor]:  # N of (G, M_n, I_n)
        """Distinct factor vectors of each site."""
        shapes = [(self.groups, *sizes) for sizes in zip(self.vector_counts, self.feature_dims, strict=True)]
        parts = self.table.split([math.prod(shape) for shape in shapes])
        return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]

    def effects(self) -> list[Tensor]:  # N of (O, I_n)
        """Main effects of each site."""
        return list(self.effect.split(list(self.feature_dims), 1))

    def factors(self, site: int, states: slice) -> Tensor:  # (J, I_n)
        """Factor vectors of some of the products, which are counted group by group."""
        place = torch.arange(self.bond_dim, device=self.device)[states]
        row, count = place % self.rows, self.vector_counts[site]
        first = place // self.rows * count
        code, share = self.code[row, site].long(), self.share[row, site, None]
        table = self.tables()[site].flatten(0, 1)
        after = table[first + (code + 1).clamp(max=count - 1)]
        return torch.lerp(table[first + code], after, share)

    def forward(self, x: Tensor) -> Tensor:  # (B, N, I), packed (B, ΣI), with runs (1, B, N, I) -> (B, O), (1, B, O)
        """The outputs; gradients flow to x, once. Values are not checked here."""
        x = self._shape.padded(x, self.coefficients, None, self.runs)[0]
        factors = Factors(self.tables(), self.code, self.share, self.coefficients)
        additive = sum((x[:, n, : e.shape[1]] @ e.T for n, e in enumerate(self.effects())), x.new_zeros(()))
        output = sum_of_products(x, factors) + additive + self.constant
        return output if self.runs is None else output.unsqueeze(0)

    @torch.no_grad()
    def cores(self) -> list[Tensor]:
        """The module as a plain tensor train: N cores (left, 1+I_n, right) over [1, x(n)], for few products.

        Its state has one entry per product, a 1, and the main effects so far. With runs every core has a leading 1.
        """
        bond = self.bond_dim + 1 + self.outputs
        size = sum(bond**2 * (1 + width) for width in self.feature_dims)
        if size > MOST_DENSE:
            raise ValueError(
                f"dense cores of {self.bond_dim} products would be {size} numbers, more than {MOST_DENSE}: "
                "restt.explain reads the products themselves, and restt.explain.prune makes a train of a smaller bond"
            )
        cores, every = [], slice(None)
        constant, total = self.bond_dim, slice(self.bond_dim + 1, None)
        places = torch.arange(self.bond_dim)
        for n, effect in enumerate(self.effects()):
            core = self.table.new_zeros(bond, 1 + effect.shape[1], bond)
            core[places, 1:, places] = self.factors(n, every)
            core[constant, 0, constant] = 1
            core[constant, 1:, total] = effect.T
            core[total, 0, total] = torch.eye(self.outputs).to(core)
            cores.append(core)
        start = torch.ones(1, bond).to(self.table)
        start[:, total] = self.constant
        ends = [start.new_zeros(1, self.outputs), torch.eye(self.outputs).to(start)]
        cores[0] = torch.einsum("al,lir->air", start, cores[0])
        cores[-1] = cores[-1] @ torch.cat([self.coefficients.flatten(0, 1), *ends])
        return cores if self.runs is None else [core[None] for core in cores]

    def with_runs(self, runs: int | None) -> DiagonalTT:
        """A copy of the module with or without a runs axis."""
        parts = (self.tables(), self.code, self.share, self.coefficients, self.effects(), self.constant)
        return DiagonalTT(*parts, runs=runs)

    def extra_repr(self) -> str:
        """Sizes, for ``repr``."""
        widths = self.feature_dim if self.padding is None else list(self.feature_dims)
        return (
            f"sites={self.sites}, feature_dim={widths}, products={self.bond_dim}, outputs={self.outputs}, "
            f"runs={self.runs}, parameters={self.num_parameters()}"
        )


def _check_shapes(
    tables: Sequence[Tensor],
    code: Tensor,
    share: Tensor,
    coefficients: Tensor,
    effects: Sequence[Tensor],
    constant: Tensor,
) -> None:
    groups, rows, outputs = coefficients.shape
    wanted = {"code": (rows, len(tables)), "share": (rows, len(tables)), "constant": (outputs,)}
    for name, tensor in (("code", code), ("share", share), ("constant", constant)):
        if tuple(tensor.shape) != wanted[name]:
            raise ValueError(f"{name} must have shape {wanted[name]}, got {tuple(tensor.shape)}")
    if code.is_floating_point() or not coefficients.is_floating_point():
        raise TypeError(f"code must be integers and coefficients floats, got {code.dtype} and {coefficients.dtype}")
    if any(len(table) != groups or 0 in table.shape for table in tables) or 0 in coefficients.shape:
        raise ValueError(f"tables must have shapes ({groups}, M, I) of none 0, got {[tuple(t.shape) for t in tables]}")
    widths = [(outputs, table.shape[2]) for table in tables]
    if [tuple(effect.shape) for effect in effects] != widths:
        raise ValueError(f"effects must have shapes {widths}, got {[tuple(effect.shape) for effect in effects]}")
    last = torch.tensor([table.shape[1] - 1 for table in tables], device=code.device)
    if bool((code < 0).any()) or bool((code > last).any()):
        raise ValueError(f"code must be from 0 to the last vector of each site, {last.tolist()}")
    if not bool(((share >= 0) & (share <= 1)).all()) or bool(((code == last) & (share > 0)).any()):
        raise ValueError("share must be from 0 to 1, and 0 where code is the last vector of a site")
