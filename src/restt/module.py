"""The model as a torch module."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from restt import chain
from restt._common.errors import check_choice, check_int, shown
from restt._common.seeds import fresh_seed, run_generator
from restt.chain.precision import any_autocast
from restt.chain.reference import ROLES, ChainWeights, role_shapes, role_tensors, used_entries
from restt.cores import cores_of, read_cores
from restt.init import INITS, draw_weights, per_site, resolve_sigma2, weight_variances, weights_are_drawn
from restt.init.stability import warn_if_unstable
from restt.site_inputs import InputShape, checked_topology, checked_widths
from restt.topology import Topology


class ResTT(nn.Module):
    """A residual tensor train of the paper: all multilinear interactions of N site vectors, orders 1 to N.

    Section III has the recurrence::

        y(1) = x(1) W(1)
        y(n) = y(n-1) + Σ_i x(n,i) y(n-1) W(n,1)_i + x(n) W(n,2)        n = 2 … N-1
        out  = Σ_i x(N,i) y(N-1) W(N,1)_i + x(N) W(N,2) + y(N-1) W(N,3)

    Parameters
    ----------
    sites : int
        Number of sites N.
    feature_dim : int or sequence of int
        Feature width I of every site, or [I_1 … I_N]. With ragged widths x is padded to the widest, and padding is
        ignored; or packed, the sites' features side by side in (B, ΣI).
    bond_dim : int
        Width r of the state.
    outputs : int
        Number of outputs O.
    topology : {"residual", "plain", "linear", "volterra"} or Topology
        Which connections each site keeps.
    sigma2 : "auto", float or sequence of float
        σ_w² of the inner sites' weights N(0, σ_w²/r). ``"auto"`` follows the mean-field rule.
        A value of your own that explodes or vanishes at this N brings a
        :class:`restt.meanfield.StabilityWarning` with the suggested one.
    second_moment : float or sequence of float
        E Σ_i x(n,i)², used by ``sigma2="auto"``; feature maps report theirs as ``second_moment``.
    init : {"balanced", "paper", "orthogonal"}
        ``"paper"`` draws all weights from N(0, σ_w²/r). ``"balanced"`` also scales the first and last site so that
        outputs start at order 1 and gradients are even along the chain. ``"orthogonal"`` is balanced with orthogonal
        inner cores, for long plain trains.
    bias : bool
        Add a learned constant (order 0) to the outputs.
    runs : int, optional
        Number of independent models side by side. Every parameter and the output then have a leading axis S.
    dtype, device
        Of the parameters.

    Examples
    --------
    >>> import torch, restt
    >>> _ = torch.manual_seed(0)
    >>> model = restt.ResTT(sites=196, feature_dim=2, bond_dim=10, outputs=10)
    >>> model(torch.rand(7, 196, 2)).shape
    torch.Size([7, 10])
    >>> model.num_parameters()
    43020
    >>> restt.ResTT(sites=4, feature_dim=[2, 3, 1, 2], bond_dim=5, outputs=1, runs=3)(torch.rand(7, 4, 3)).shape
    torch.Size([3, 7, 1])
    >>> restt.ResTT(sites=4, feature_dim=[2, 3, 1, 2], bond_dim=5, outputs=1)(torch.rand(7, 8)).shape  # packed
    torch.Size([7, 1])
    """

    first: nn.Parameter
    chain: nn.Parameter | None
    linear: nn.Parameter | None
    last_chain: nn.Parameter | None
    last_linear: nn.Parameter | None
    last_skip: nn.Parameter | None
    bias: nn.Parameter | None
    padding: Tensor | None

    def __init__(
        self,
        sites: int,
        feature_dim: int | Sequence[int],
        bond_dim: int,
        outputs: int,
        topology: str | Topology = "residual",
        sigma2: str | float | Sequence[float] | Tensor = "auto",
        second_moment: float | Sequence[float] | Tensor = 1.0,
        init: str = "balanced",
        bias: bool = False,
        runs: int | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        self.sites = check_int("sites", sites, minimum=1)
        self.feature_dims = checked_widths(feature_dim, self.sites)
        self.bond_dim = check_int("bond_dim", bond_dim, minimum=1)
        self.outputs = check_int("outputs", outputs, minimum=1)
        self.topology = checked_topology(topology, self.sites)
        self.init = check_choice("init", init, INITS)
        self.runs = None if runs is None else check_int("runs", runs, minimum=1)
        self._shape = InputShape(self.feature_dims)
        dtype = torch.get_default_dtype() if dtype is None else dtype
        if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
            raise TypeError(f"dtype must be a floating point torch.dtype, got {shown(dtype)}")
        with _on_host():
            self.second_moment = per_site("second_moment", second_moment, self.sites)
            self.sigma2 = resolve_sigma2(sigma2, self.topology, self.second_moment)
            if not isinstance(sigma2, str):
                warn_if_unstable(self.topology, self.second_moment, self.sigma2)
        leading = [] if self.runs is None else [self.runs]
        shapes: dict[str, Sequence[int] | None] = dict(self._role_shapes())
        shapes["bias"] = (*[1] * len(leading), self.outputs) if bias else None
        for name, shape in shapes.items():
            value = None if shape is None else torch.empty(*leading, *shape, dtype=dtype, device=device)
            self.register_parameter(name, None if value is None else nn.Parameter(value))
        self.register_buffer("padding", self._shape.padding(self.device), persistent=False)
        if weights_are_drawn():
            self.reset_parameters()

    def _apply(self, fn: Any, recurse: bool = True) -> ResTT:
        module = super()._apply(fn, recurse)
        # No file holds the padding, and `to_empty` leaves a buffer unwritten.
        self.padding = self._shape.padding(self.device)
        return module

    def _load_from_state_dict(self, *arguments: Any, **options: Any) -> None:
        super()._load_from_state_dict(*arguments, **options)
        self.padding = self._shape.padding(self.device)  # assigned parameters may lie elsewhere than those replaced

    @property
    def dtype(self) -> torch.dtype:
        """Type of the parameters."""
        return self.first.dtype

    @property
    def device(self) -> torch.device:
        """Device of the parameters."""
        return self.first.device

    @property
    def row_work(self) -> int:
        """About how many multiplications one row takes."""
        return sum(self.feature_dims) * self.bond_dim**2 * (self.runs or 1)

    @property
    def feature_dim(self) -> int:
        """The widest site's feature width I."""
        return self._shape.widest

    def _role_shapes(self) -> dict[str, tuple[int, ...] | None]:
        return role_shapes(self.topology, self.feature_dim, self.bond_dim, self.outputs)

    def used(self, role: str) -> Tensor | None:
        """Mask of a role's entries that belong to the model: not padding, not a connection that is switched off.

        A boolean tensor that broadcasts against one run of the parameter; None where the role is absent.
        """
        absent = getattr(self, role) is None
        return None if absent else used_entries(role, self.topology, self.feature_dims)

    @torch.no_grad()
    def reset_parameters(self, seed: int | None = None, run_ids: Sequence[int] | None = None) -> None:
        """Draw all weights again.

        Parameters
        ----------
        seed : int, optional
            Root of the seed sequence; by default drawn from torch's global generator.
        run_ids : sequence of int, optional
            Which children of the seed sequence the runs are; by default 0 … S-1. Run k alone, ``run_ids=[k]``, has
            the same weights as run k among many.
        """
        seed = fresh_seed() if seed is None else check_int("seed", seed, minimum=0)
        count = self.runs or 1
        ids = list(range(count)) if run_ids is None else [check_int("run_ids", k, minimum=0) for k in run_ids]
        if len(ids) != count:
            raise ValueError(f"run_ids must name {count} run(s), got {len(ids)}")
        with _on_host():
            self._draw(seed, ids)
        if self.bias is not None:
            self.bias.zero_()

    def _draw(self, seed: int, ids: Sequence[int]) -> None:
        variances = weight_variances(self.topology, self.bond_dim, self.sigma2, self.second_moment, self.init)
        shapes = {role: shape for role, shape in self._role_shapes().items() if shape is not None}
        generators = [run_generator(seed, run) for run in ids]
        for role, values in draw_weights(shapes, variances, self.init, generators, self.first.dtype).items():
            used = self.used(role)
            assert used is not None
            values.masked_fill_(~used, 0)
            getattr(self, role).copy_(values[0] if self.runs is None else values)

    def weights(self) -> ChainWeights:
        """The parameters as the chain takes them, with the runs axis in front."""
        tensors = {role: getattr(self, role) for role in ROLES}
        if self.runs is None:
            tensors = {role: None if tensor is None else tensor.unsqueeze(0) for role, tensor in tensors.items()}
        return ChainWeights(**tensors, outputs=self.outputs)

    def forward(
        self,
        x: Tensor,  # (B, N, I) or packed (B, ΣI); with runs also (S, B, N, I) or (S, B, ΣI)
    ) -> Tensor:  # (B, O) or, with runs, (S, B, O)
        """The outputs. Values are not checked here, so that nothing waits for the device.

        Packed features are those of all sites side by side, without padding. Three axes whose last two are (N, I) are
        the padded form. Under ``torch.autocast`` outputs have the type that torch's own layers give there, and x may
        have it too. Sums and states stay in the parameters' type; products are rounded where the GPU has kernels for
        that.
        """
        first = self.first
        # A single model goes without the runs axis: giving it one takes longer than a small contraction.
        weights = ChainWeights(
            first, self.chain, self.linear, self.last_chain, self.last_linear, self.last_skip, self.outputs
        )
        lowered: torch.dtype | None = None
        widths: tuple[int, ...] = ()
        if self.runs is not None or self._shape.is_ragged or any_autocast() or not self._shape.is_usual(x, first):
            x, widths, lowered = self._shape.prepared(x, first, self.padding, self.runs)
        output = chain.contract(x, weights, self.topology, widths)
        bias = self.bias
        output = output if bias is None else output + bias
        return output if lowered is None else output.to(lowered)

    def padded(
        self,
        x: Tensor,  # what forward takes
    ) -> Tensor:  # (S or 1, B, N, I)
        """The features in their padded form, checked, with the runs axis in front and zeros as padding."""
        return self._shape.padded(x, self.first, self.padding, self.runs)

    def num_parameters(self) -> int:
        """Trainable numbers in one run, counted on Algorithm 1's tensors: padding and absent connections left out.

        The paper's Table I leaves some tensors out; see :func:`restt_paper.table1.paper_count`.
        """
        total = 0 if self.bias is None else self.outputs
        for role in ROLES:
            parameter, used = getattr(self, role), self.used(role)
            if parameter is not None and used is not None:
                shape = parameter.shape if self.runs is None else parameter.shape[1:]
                total += int(used.expand(shape).sum())
        return total

    @torch.no_grad()
    def cores(self) -> list[Tensor]:
        """The module as a plain tensor train: N cores (left, 1+I_n, right) over [1, x(n)], exact.

        left = 1 at site 1, right = O at site N, the inner bond is r + 1, or 2r + 1 where some skip goes to the
        output. With runs every core has a leading S. A bias sits in the constant slice of the last core.

        >>> cores = ResTT(sites=3, feature_dim=2, bond_dim=4, outputs=1).cores()
        >>> [tuple(core.shape) for core in cores]
        [(1, 3, 5), (5, 3, 5), (5, 3, 1)]
        """
        bias = None if self.bias is None else self.bias.reshape(-1, self.outputs)
        cores = cores_of(self.weights(), self.topology, self.feature_dims, bias)
        return [core[0] for core in cores] if self.runs is None else cores

    @classmethod
    @torch.no_grad()
    def from_cores(cls, cores: Sequence[Tensor], topology: str | Topology = "residual") -> ResTT:
        """The module whose :meth:`cores` these are.

        Cores that do not have that structure are refused, except with ``topology="plain"``: any tensor train of cores
        (left, D_n, right) then loads as a plain module over D_n features per site, inner bonds padded to the largest.

        >>> model = ResTT(sites=3, feature_dim=2, bond_dim=4, outputs=1)
        >>> same = ResTT.from_cores(model.cores(), topology="residual")
        >>> x = torch.rand(5, 3, 2)
        >>> torch.equal(model(x), same(x))
        True
        >>> train = [torch.rand(1, 2, 3), torch.rand(3, 2, 4), torch.rand(4, 2, 1)]
        >>> ResTT.from_cores(train, topology="plain").bond_dim
        4
        """
        read = read_cores(cores, topology)
        first, bias = read.weights.first, read.bias is not None
        runs = len(first) if read.has_runs else None
        sizes = (read.topology.sites, read.widths, read.bond, read.weights.outputs, read.topology)
        module = cls(*sizes, bias=bias, runs=runs, dtype=first.dtype, device=first.device)
        for name, values in zip((*ROLES, "bias"), (*role_tensors(read.weights), read.bias), strict=True):
            if values is not None:
                parameter = module.get_parameter(name)
                parameter.copy_(values.view_as(parameter))
        return module

    def extra_repr(self) -> str:
        """Sizes, for ``repr``."""
        widths = self.feature_dim if self.padding is None else list(self.feature_dims)
        topology = self.topology.name
        return (
            f"sites={self.sites}, feature_dim={widths}, bond_dim={self.bond_dim}, outputs={self.outputs}, "
            f"topology={topology}, runs={self.runs}, parameters={self.num_parameters()}"
        )


def _on_host() -> AbstractContextManager[Any]:
    """Make tensors on the host, also within a ``with torch.device(…):`` block."""
    return nullcontext() if torch.empty(0).is_cpu else torch.device("cpu")
