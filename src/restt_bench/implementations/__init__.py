"""Everything that can be timed: restt by each backend, the baselines, and the machine's limit."""

from __future__ import annotations

from restt import chain
from restt._common.errors import check_choice
from restt_bench.implementations.base import Implementation
from restt_bench.implementations.baselines import PlainTorch, TensorKrowch
from restt_bench.implementations.limit import Limit
from restt_bench.implementations.ours import Ours
from restt_bench.implementations.own_loops import OwnLoop

__all__ = ["Implementation", "chosen", "field", "implementation_named"]


def chosen(device: str) -> str:
    """What a user gets, by name: on a GPU training replays a captured step.

    >>> chosen("cpu"), chosen("cuda:0")
    ('auto', 'auto-graph')
    """
    return "auto-graph" if device.startswith("cuda") else "auto"


def field(device: str, *, plain: bool = False) -> list[Implementation]:
    """Ours, the baselines and the limit on a device; with ``plain`` also our plain train, for the paper's TT.

    A GPU times what can be captured as a CUDA graph both ways, ours and everybody else's, and loops of one's own.
    """
    own: list[Implementation]
    if device.startswith("cuda"):
        own = [Ours("auto", graph=True), Ours("auto"), Ours("eager", graph=True), Ours("eager")]
        own += [Ours("auto", "plain", graph=True)] if plain else []
        own += [OwnLoop(loop, only_usual=True) for loop in ("graphed-whole", "graphed-step", "compiled-step")]
        others = [PlainTorch(form, graph=graph) for form in ("torch", "textbook") for graph in (True, False)]
        return [*own, *others, TensorKrowch(), TensorKrowch(inline=True), Limit(graph=True)]
    own = [Ours("auto"), *(Ours(name) for name in chain.BACKENDS), *([Ours("auto", "plain")] if plain else [])]
    return [*own, PlainTorch("torch"), PlainTorch("textbook"), TensorKrowch(), TensorKrowch(inline=True), Limit()]


def implementation_named(name: str) -> Implementation:
    """The implementation with this name in results files."""
    known = {made.name: made for device in ("cpu", "cuda") for made in field(device, plain=True)}
    return known[check_choice("implementation", name, known)]
