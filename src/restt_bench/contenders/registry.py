"""Everybody who can take part."""

from __future__ import annotations

from restt import chain
from restt._common.errors import check_choice
from restt_bench.contenders.base import Contender
from restt_bench.contenders.full_tensor import FullTensor
from restt_bench.contenders.limit import Limit
from restt_bench.contenders.ours import Ours
from restt_bench.contenders.tensorkrowch import TensorKrowch
from restt_bench.contenders.textbook import Textbook

CHOSEN = "auto"  # what a user gets: the targets are held against it


def ours() -> list[Contender]:
    """restt's own choice first, then every backend by name."""
    return [Ours(CHOSEN), *(Ours(name) for name in chain.BACKENDS)]


def racers(*, plain: bool = False) -> list[Contender]:
    """Ours in every backend, the peers and the limit; with ``plain`` also our plain train, for the paper's TT."""
    own = [*ours(), Ours(CHOSEN, "plain")] if plain else ours()
    return [*own, Textbook(), TensorKrowch(), TensorKrowch(inline=True), Limit()]


def full_tensor_racers() -> list[Contender]:
    """The full tensor and the two trains that replace it."""
    return [Ours(CHOSEN), Ours(CHOSEN, "plain"), FullTensor()]


def contender_named(name: str) -> Contender:
    """The contender with this name in results files."""
    known = {contender.name: contender for contender in (*racers(plain=True), *full_tensor_racers())}
    return known[check_choice("contender", name, known)]
