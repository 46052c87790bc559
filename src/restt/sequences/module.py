"""A residual tensor train over time: one core for all steps.

    h_t = h_{t-1} + Σ_i x_{t,i} (h_{t-1} W_i) + x_t U,        output = h_T V + b

The recurrence of :class:`restt.ResTT` with the same W(n,1) and W(n,2) at every site: a state-affine system, which holds
every product of features at any steps. A step of features 0 leaves the state as it is, so sequences of several lengths
are padded with zeros, exactly. The sum over steps is done by the fused chain kernels, which read the one core as if it
were many; its gradients add up.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor, nn

from restt import chain
from restt._common.errors import check_int
from restt.chain import ChainWeights
from restt.topology import Topology


@lru_cache(maxsize=64)
def _topology(steps: int) -> Topology:
    """A site for the first state, one for each step, and one that only hands the last state on."""
    sites = steps + 2
    return Topology.residual(sites).without_chain(sites).without_linear(sites)


class ResTTSequence(nn.Module):
    """A residual train with tied cores, from sequences of any length to outputs.

    Parameters
    ----------
    feature_dim : int
        I, the width of a step's features.
    bond_dim : int
        r, the width of the state.
    outputs : int
        O.
    length : int, default=100
        About how many steps sequences have: initial weights are small enough for a state of order 1 after so many,
        also where the same features come at every step (the core's spectral radius is about 1/length).
    dtype, device
        Of the parameters.

    Attributes
    ----------
    core : Parameter (I, r, r)
    entry : Parameter (I, r)
    start : Parameter (r,)
        The state before the first step.
    head : Parameter (r, O)
    bias : Parameter (O,)

    Examples
    --------
    >>> module = ResTTSequence(feature_dim=2, bond_dim=4, outputs=1)
    >>> x = torch.rand(3, 10, 2)
    >>> output, state = module.stream(x[:, :6])  # state after six steps …
    >>> later, _ = module.stream(x[:, 6:], state)  # … carried on
    >>> torch.allclose(later, module(x), atol=1e-5)
    True
    >>> module(x, lengths=torch.tensor([10, 4, 1])).shape
    torch.Size([3, 1])
    """

    def __init__(
        self,
        feature_dim: int,
        bond_dim: int,
        outputs: int,
        *,
        length: int = 100,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        self.feature_dim = check_int("feature_dim", feature_dim, minimum=1)
        self.bond_dim = check_int("bond_dim", bond_dim, minimum=1)
        self.outputs = check_int("outputs", outputs, minimum=1)
        self.length = check_int("length", length, minimum=1)
        shapes = {
            "core": (feature_dim, bond_dim, bond_dim),
            "entry": (feature_dim, bond_dim),
            "start": (bond_dim,),
            "head": (bond_dim, outputs),
            "bias": (outputs,),
        }
        for name, shape in shapes.items():
            self.register_parameter(name, nn.Parameter(torch.empty(shape, dtype=dtype, device=device)))
        self.reset_parameters()

    core: Tensor
    entry: Tensor
    start: Tensor
    head: Tensor
    bias: Tensor

    @torch.no_grad()
    def reset_parameters(self, seed: int | None = None) -> None:
        """Draw all weights anew, with a seed the same ones."""
        generator = None if seed is None else torch.Generator(self.core.device).manual_seed(seed)
        scale = self.feature_dim**-0.5
        self.core.normal_(0, scale / (self.length * self.bond_dim**0.5), generator=generator)
        self.entry.normal_(0, scale / self.length**0.5, generator=generator)
        self.head.normal_(0, self.bond_dim**-0.5, generator=generator)
        self.start.normal_(0, 1, generator=generator)
        self.bias.zero_()

    def forward(
        self,
        x: Tensor,  # (B, T, I)
        lengths: Tensor | None = None,  # (B,): steps beyond them do not count
    ) -> Tensor:  # (B, O)
        """The output after the last step of each sequence."""
        return self.state(x, lengths) @ self.head + self.bias

    def state(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:  # (B, r)
        """The state after the last step of each sequence."""
        self._check(x)
        steps = x.shape[1]
        if lengths is not None:
            x = x * self._mask(x, lengths)[..., None].to(x)
        one = torch.zeros_like(x[:, :1])
        one[..., 0] = 1
        first = torch.cat([self.start[None], self.start.new_zeros(self.feature_dim - 1, self.bond_dim)])
        eye = torch.eye(self.bond_dim, dtype=x.dtype, device=x.device)
        weights = ChainWeights(
            first[None],
            self.core.expand(1, steps, -1, -1, -1),
            self.entry.expand(1, steps, -1, -1),
            None,
            None,
            eye[None],
            self.bond_dim,
        )
        return chain.contract(torch.cat([one, x, one], dim=1)[None], weights, _topology(steps))[0]

    def stream(
        self,
        x: Tensor,  # (B, T, I)
        state: Tensor | None = None,  # (B, r)
    ) -> tuple[Tensor, Tensor]:  # (B, O), (B, r)
        """The output after more steps, and the state to carry on; without a state from the start."""
        if state is None:
            state = self.state(x)
        else:
            self._check(x)
            if state.shape != (len(x), self.bond_dim):
                raise ValueError(f"state must have shape {(len(x), self.bond_dim)}, got {tuple(state.shape)}")
            for step in x.unbind(1):
                state = state + torch.einsum("bk,bi,ikl->bl", state, step, self.core) + step @ self.entry
        return state @ self.head + self.bias, state

    def _check(self, x: Tensor) -> None:
        if x.dim() != 3 or x.shape[2] != self.feature_dim:
            raise ValueError(f"x must have shape (B, T, {self.feature_dim}), got {tuple(x.shape)}")
        if x.shape[1] == 0:
            raise ValueError("x must have at least one step, got sequences of length 0")

    def _mask(self, x: Tensor, lengths: Tensor) -> Tensor:  # (B, T)
        if lengths.shape != x.shape[:1]:
            raise ValueError(f"lengths must have shape ({len(x)},), got {tuple(lengths.shape)}")
        if bool((lengths < 1).any()) or bool((lengths > x.shape[1]).any()):
            wrong = int(lengths[(lengths < 1) | (lengths > x.shape[1])][0])
            raise ValueError(f"lengths must be between 1 and {x.shape[1]}, got {wrong}")
        return torch.arange(x.shape[1], device=x.device) < lengths.to(x.device)[:, None]

    def extra_repr(self) -> str:
        """Sizes, for torch's representation."""
        return f"feature_dim={self.feature_dim}, bond_dim={self.bond_dim}, outputs={self.outputs}, length={self.length}"
