"""Networks with the runs axis: S of the same shape side by side, each with weights of its own.

All parameters and buffers have S in front, which is what :func:`restt.train.train` asks of a module with runs. The
number of runs is read off the weights, so that a copy of the module with fewer runs needs nothing else.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from restt._common.errors import check_int, square_side
from restt._common.seeds import run_generator


class SideBySide(nn.Module):
    """S networks of one shape, the weights of run k drawn by torch's global generator under child k of ``seed``.

    ``row`` is the shape of a row, where it is checked.

    >>> SideBySide(lambda: nn.Linear(4, 2), runs=3, seed=0)(torch.rand(5, 4)).shape
    torch.Size([3, 5, 2])
    """

    def __init__(self, make: Callable[[], nn.Module], runs: int, seed: int, row: tuple[int, ...] | None = None) -> None:
        super().__init__()
        self.runs, self.row = check_int("runs", runs, minimum=1), row
        networks = []
        with torch.random.fork_rng(devices=[]):
            for run in range(runs):
                torch.manual_seed(run_generator(seed, run).initial_seed())
                networks.append(make())
        self.network = networks[0]
        parameters, buffers = torch.func.stack_module_state(networks)
        for name, value in {**parameters, **buffers}.items():
            owner, _, own = name.rpartition(".")
            stacked = nn.Parameter(value.detach()) if name in parameters else value
            setattr(self.network.get_submodule(owner), own, stacked)

    def forward(self, x: Tensor) -> Tensor:  # (B, …) or (S, B, …) -> (S, B, O)
        """Outputs of every run."""
        rows = with_runs(x, self.runs, self.row or x.shape[-1:])
        tensors = {**dict(self.network.named_parameters()), **dict(self.network.named_buffers())}
        # unbind gathers the runs' gradients at once; indexing would fill a tensor of all runs for each of them.
        runs = zip(*(tensor.unbind() for tensor in tensors.values()), strict=True)
        states = [dict(zip(tensors, own, strict=True)) for own in runs]
        outputs = [
            torch.func.functional_call(self.network, state, (own,), tie_weights=False)
            for state, own in zip(states, rows.expand(self.runs, *rows.shape[1:]), strict=True)
        ]
        return torch.stack(outputs)


class RunDraws:
    """Normal draws of S runs, run k's from child k of the seed sequence ``seed``.

    >>> RunDraws(0, runs=3)(2, 5).shape
    torch.Size([3, 2, 5])
    """

    def __init__(self, seed: int, runs: int, stream: int = 0) -> None:
        self.generators = [run_generator(seed, run, stream) for run in range(runs)]

    def __call__(self, *shape: int) -> Tensor:  # (S, *shape)
        """The next draws of every run."""
        return torch.stack([torch.randn(shape, generator=generator) for generator in self.generators])


def image_side(columns: int) -> int:
    """The side of a square image of this many pixels.

    >>> image_side(784)
    28
    """
    return square_side("columns of X, one for each pixel,", columns)


def with_runs(
    x: Tensor,  # (B, …) or (S, B, …)
    runs: int,
    row: tuple[int, ...],  # shape of one row
) -> Tensor:  # (1 or S, B, …)
    """``x`` with the runs axis in front, of length 1 where all runs see the same rows.

    >>> import torch
    >>> with_runs(torch.zeros(5, 4), 3, (4,)).shape, with_runs(torch.zeros(3, 5, 4), 3, (4,)).shape
    (torch.Size([1, 5, 4]), torch.Size([3, 5, 4]))
    """
    leading, own = tuple(x.shape[: x.dim() - len(row)]), tuple(x.shape[x.dim() - len(row) :])
    if own != row or len(leading) not in (1, 2) or (len(leading) == 2 and leading[0] != runs):
        sizes = ", ".join(map(str, row))
        raise ValueError(f"x must have shape (B, {sizes}) or ({runs}, B, {sizes}), got {tuple(x.shape)}")
    return x if len(leading) == 2 else x.unsqueeze(0)
