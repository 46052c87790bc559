"""Connections of the sites of a tensor train, and the interactions that its output contains."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import groupby
from os import PathLike
from typing import Any, Literal

from restt._common.errors import check_choice, check_int, shown

Skip = Literal["full", "output", "none"]
SKIP_MODES: tuple[Skip, ...] = ("full", "output", "none")
# Chain, linear entry and skip of every later site.
PRESETS: dict[str, tuple[bool, bool, Skip]] = {
    "residual": (True, True, "full"),
    "plain": (True, False, "none"),
    "linear": (False, True, "full"),
    "volterra": (True, True, "none"),
}
CHAIN_FLAG, LINEAR_FLAG = 1, 2
SKIP_FLAGS = {"full": 4, "output": 8, "none": 0}
_SKIP_WORDS = {"full": "skip", "output": "skip to output", "none": ""}


@dataclass(frozen=True)
class Topology:
    """The connections of sites 2…N of a (residual) tensor train.

    Sites are numbered 1…N as in the paper. Site 1 has only its own tensor W(1); every later site n has

    - a chain core W(n,1) that multiplies the state y(n-1) with the features x(n), or none;
    - a linear entry W(n,2) through which x(n) joins the state on its own, or none;
    - a skip mode that says where y(n-1) goes unchanged. ``"full"``: into y(n). ``"output"``: it leaves the chain and
      is added, through W(N,3), to the output. ``"none"``: nowhere. At site N full and output are the same thing.

    The tuples ``chains``, ``linears`` and ``skips`` hold one entry per site 2…N. Instances are immutable and
    hashable; the editing methods return new ones and take one or more 1-based sites.

    Examples
    --------
    >>> from restt import Topology
    >>> residual = Topology.residual(4)
    >>> residual.count_terms(), residual.orders()
    (15, (1, 2, 3, 4))
    >>> Topology.plain(4).contains({1, 3}), residual.contains({1, 3})
    (False, True)
    >>> residual.without_skip(2).contains({1, 3})
    False
    >>> print(residual.skip_to_output(2))
    Topology of 4 sites: 12 terms, orders 1-4
      site 1     W(1)
      site 2     chain + linear + skip to output
      sites 3-4  chain + linear + skip
    """

    sites: int
    chains: tuple[bool, ...]
    linears: tuple[bool, ...]
    skips: tuple[Skip, ...]
    connections: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sites", check_int("sites", self.sites, minimum=1))
        for name in ("chains", "linears", "skips"):
            given = getattr(self, name)
            if isinstance(given, str) or not isinstance(given, Iterable):
                raise TypeError(f"{name} must be a sequence with one entry per site 2…N, got {shown(given)}")
            values = tuple(given)
            if len(values) != self.sites - 1:
                expected = f"{self.sites - 1} entries, one for each site 2…{self.sites}"
                raise ValueError(f"{name} must have {expected}, got {len(values)}")
            object.__setattr__(self, name, values)
        for name in ("chains", "linears"):
            flags = getattr(self, name)
            if not all(isinstance(flag, int) and flag in (0, 1) for flag in flags):
                raise TypeError(f"{name} must hold True or False only, got {shown(flags)}")
            object.__setattr__(self, name, tuple(bool(flag) for flag in flags))
        for mode in self.skips:
            check_choice("skips", mode, SKIP_MODES)
        # As text, which operators take. Now and not at first use, where a compiler may be tracing.
        object.__setattr__(self, "connections", "".join(f"{flags:x}" for flags in self.connection_flags))

    @classmethod
    def residual(cls, sites: int) -> Topology:
        """ResTT (paper, Sec. III-A): every connection on, all 2^N - 1 interactions."""
        return cls.preset("residual", sites)

    @classmethod
    def plain(cls, sites: int) -> Topology:
        """The plain tensor train (paper, Eq. 5): only the N-th order interaction."""
        return cls.preset("plain", sites)

    @classmethod
    def linear(cls, sites: int) -> Topology:
        """A fully-connected layer (paper, Fig. 3b), exactly so for bond_dim ≥ outputs: only order 1."""
        return cls.preset("linear", sites)

    @classmethod
    def volterra(cls, sites: int) -> Topology:
        """The Volterra series (paper, Fig. 3c): the suffix products {N}, {N-1,N}, …, {1…N}."""
        return cls.preset("volterra", sites)

    @classmethod
    def preset(cls, name: str, sites: int) -> Topology:
        """The preset called ``name``: residual, plain, linear or volterra."""
        check_choice("topology", name, PRESETS)
        return _made_once(name, check_int("sites", sites, minimum=1))

    def without_chain(self, *sites: int) -> Topology:
        """Drop the chain core W(n,1) of these sites."""
        return self._edited("chains", sites, False)

    def without_linear(self, *sites: int) -> Topology:
        """Drop the linear entry W(n,2) of these sites."""
        return self._edited("linears", sites, False)

    def without_skip(self, *sites: int) -> Topology:
        """Drop the skip of y(n-1) around site n. Terms that end before n are lost with it."""
        return self._edited("skips", sites, "none")

    def skip_to_output(self, *sites: int) -> Topology:
        """Lead the skip of y(n-1) to the output instead of into y(n) (the paper's three-site example)."""
        return self._edited("skips", sites, "output")

    def _edited(self, field: str, sites: tuple[int, ...], value: Any) -> Topology:
        if not sites:
            raise TypeError("expected at least one site number")
        entries = list(getattr(self, field))
        for site in sites:
            number = check_int("site", site)
            if number == 1:
                raise ValueError(f"site 1 has only W(1): it has no {field[:-1]} to change; expected 2…{self.sites}")
            if not 2 <= number <= self.sites:
                raise ValueError(f"site must be in 2…{self.sites}, got {number}")
            entries[number - 2] = value
        changed: dict[str, Any] = {field: tuple(entries)}
        return replace(self, **changed)

    @property
    def has_chain(self) -> bool:
        """Whether some site 2…N-1 has a chain core."""
        return any(self.chains[:-1])

    @property
    def has_linear(self) -> bool:
        """Whether some site 2…N-1 has a linear entry."""
        return any(self.linears[:-1])

    @property
    def has_output_skip(self) -> bool:
        """Whether some skip of a site before N leaves the chain towards the output."""
        return "output" in self.skips[:-1]

    @property
    def ends_with_skip(self) -> bool:
        """Whether y(N-1) itself reaches the output through W(N,3)."""
        return self.sites > 1 and self.skips[-1] != "none"

    @property
    def has_skip_head(self) -> bool:
        """Whether W(N,3) exists: something reaches the output through it."""
        return self.ends_with_skip or self.has_output_skip

    @property
    def full_skips(self) -> int:
        """Number of sites with a full skip; the last site's output skip counts, being the same thing."""
        return sum(mode == "full" for mode in self.skips[:-1]) + self.ends_with_skip

    @cached_property
    def connection_flags(self) -> bytes:
        """One byte per site 2…N, as the kernels read them: 1 chain, 2 linear, 4 full skip, 8 skip to the output.

        >>> list(Topology.residual(3).skip_to_output(2).connection_flags)
        [11, 7]
        """
        # Kept by the instance: hashing a topology of 10,000 sites takes longer than a small contraction.
        sites = zip(self.chains, self.linears, self.skips, strict=True)
        return bytes(CHAIN_FLAG * chain | LINEAR_FLAG * linear | SKIP_FLAGS[skip] for chain, linear, skip in sites)

    @classmethod
    def from_connections(cls, connections: str) -> Topology:
        """The topology with these :attr:`connections`, one hexadecimal digit for the flags of each site 2…N.

        >>> Topology.residual(3).skip_to_output(2).connections
        'b7'
        >>> Topology.from_connections("777") == Topology.residual(4)
        True
        """
        modes = {SKIP_FLAGS[mode]: mode for mode in SKIP_MODES}
        flags = [int(digit, 16) for digit in connections]
        chains, linears = (tuple(bool(site & flag) for site in flags) for flag in (CHAIN_FLAG, LINEAR_FLAG))
        skips = tuple(modes[site & ~(CHAIN_FLAG | LINEAR_FLAG)] for site in flags)
        return cls(len(flags) + 1, chains, linears, skips)

    def to_config(self) -> dict[str, Any]:
        """The topology as JSON-able values, which :meth:`from_config` reads.

        >>> Topology.plain(2).to_config()
        {'sites': 2, 'chains': [True], 'linears': [False], 'skips': ['none']}
        """
        return {"sites": self.sites, **{name: list(getattr(self, name)) for name in ("chains", "linears", "skips")}}

    @classmethod
    def from_config(cls, config: Any) -> Topology:
        """The topology that :meth:`to_config` wrote; ``sites`` may be missing and is then read off the lists.

        >>> Topology.from_config({"chains": [True], "linears": [False], "skips": ["none"]}) == Topology.plain(2)
        True
        """
        fields = ("chains", "linears", "skips")
        if not isinstance(config, Mapping) or not set(fields) <= set(config) <= {"sites", *fields}:
            raise ValueError(f"config must be a dict with {', '.join(fields)} and maybe sites, got {shown(config)}")
        for name in fields:
            if not isinstance(config[name], (list, tuple)):
                raise TypeError(f"config[{name!r}] must be a list, got {shown(config[name])}")
        return cls(config.get("sites", len(config["chains"]) + 1), *(tuple(config[name]) for name in fields))

    @property
    def name(self) -> str:
        """The preset's name, or ``"custom"``."""
        return next((name for name in PRESETS if Topology.preset(name, self.sites) == self), "custom")

    def contains(self, sites: Iterable[int]) -> bool:
        """Return whether the interaction of exactly these 1-based sites is a term of the output. O(N).

        Every interaction has at most one path through the chain: it enters at its first site, each later member is a
        chain step, each gap a full skip, and after its last member it follows the skips to the output.

        >>> Topology.volterra(3).contains([2, 3]), Topology.volterra(3).contains([1, 2])
        (True, False)
        """
        if isinstance(sites, str) or not isinstance(sites, Iterable):
            raise TypeError(f"sites must be a collection of site numbers, got {shown(sites)}")
        members = {check_int("sites", site) for site in sites}
        wrong = sorted(site for site in members if not 1 <= site <= self.sites)
        if wrong:
            raise ValueError(f"sites must be in 1…{self.sites}, got {wrong}")
        if not members:
            return False
        first, last = min(members), max(members)
        if first > 1 and not self.linears[first - 2]:
            return False
        for site in range(first + 1, last + 1):
            kept = self.chains[site - 2] if site in members else self.skips[site - 2] == "full"
            if not kept:
                return False
        for site in range(last + 1, self.sites + 1):
            if self.skips[site - 2] != "full":
                return self.skips[site - 2] == "output"
        return True

    def count_terms(self, order: int | None = None) -> int:
        """Number of interactions in the output, of one order or in all; exact.

        >>> Topology.residual(200).count_terms() == 2**200 - 1
        True
        >>> Topology.residual(200).count_terms(2)
        19900
        """
        if order is None:
            return self._terms(1)
        order = check_int("order", order, minimum=0)
        if order > self.sites:
            return 0
        # At t = 2^K every coefficient, all below 2^N, has K bits of its own.
        bits = self.sites + 1
        return self._terms(1 << bits, modulo=1 << bits * (order + 1)) >> bits * order

    def _terms(self, t: int, modulo: int | None = None) -> int:
        """The generating polynomial of the terms' orders at ``t``: P(n) = (chain t + [full]) P(n-1) + linear t."""
        state, output = t, 0
        for chain, linear, skip in zip(self.chains[:-1], self.linears[:-1], self.skips[:-1], strict=True):
            output += state * (skip == "output")
            state = state * (t * chain + (skip == "full")) + t * linear
            if modulo is not None:
                state %= modulo
        if self.sites > 1:
            state = output + state * (t * self.chains[-1] + self.ends_with_skip) + t * self.linears[-1]
        return state if modulo is None else state % modulo

    def orders(self) -> tuple[int, ...]:
        """The orders of interaction present in the output, ascending.

        >>> Topology.plain(5).orders(), Topology.linear(5).orders()
        ((5,), (1,))
        """
        # The same recursion on sets of orders, held as the bits of one integer.
        state = present = 0b10
        if self.sites > 1:
            present = 0
            for position, (chain, linear, skip) in enumerate(zip(self.chains, self.linears, self.skips, strict=True)):
                last = position == self.sites - 2
                if skip == "output" or (last and skip == "full"):
                    present |= state
                kept = state if skip == "full" and not last else 0
                state = kept | (state << 1 if chain else 0) | (0b10 if linear else 0)
            present |= state
        return tuple(order for order in range(1, self.sites + 1) if present >> order & 1)

    def dead_sites(self) -> tuple[int, ...]:
        """The sites that take part in no interaction of the output.

        >>> Topology.plain(4).without_chain(3).dead_sites()
        (1, 2, 3, 4)
        """
        if self.sites == 1:
            return ()
        carries = [True]  # carries[n-1]: does y(n) hold any term?
        for chain, linear, skip in zip(self.chains[:-1], self.linears[:-1], self.skips[:-1], strict=True):
            carries.append(linear or (carries[-1] and (chain or skip == "full")))
        reaches = [self.chains[-1] or self.ends_with_skip]  # from the back: does y(n) reach the output?
        for chain, skip in zip(self.chains[-2::-1], self.skips[-2::-1], strict=True):
            reaches.append(skip == "output" or (reaches[-1] and (chain or skip == "full")))
        reaches = [*reversed(reaches), True]
        dead = [] if reaches[0] else [1]
        for site in range(2, self.sites + 1):
            enters = self.linears[site - 2] or (self.chains[site - 2] and carries[site - 2])
            if not (enters and reaches[site - 1]):
                dead.append(site)
        return tuple(dead)

    def draw(self, path: str | PathLike[str]) -> None:
        """Save a picture in the style of the paper's Fig. 3; the file ending picks the format (png, svg, pdf)."""
        from restt.topology_picture import draw_topology

        draw_topology(self, path)

    def __str__(self) -> str:
        orders = self.orders()
        contiguous = bool(orders) and orders == tuple(range(orders[0], orders[-1] + 1))
        if not orders:
            span = "no interaction reaches the output"
        elif len(orders) == 1:
            span = f"order {orders[0]}"
        elif contiguous:
            span = f"orders {orders[0]}-{orders[-1]}"
        else:
            span = "orders " + ", ".join(map(str, orders))
        total = self.count_terms()
        count = str(total) if total < 10**9 else f"about 10^{len(str(total)) - 1}"
        rows = [("site 1", "W(1)")]
        connections = zip(range(2, self.sites + 1), self.chains, self.linears, self.skips, strict=True)
        for (chain, linear, skip), group in groupby(connections, key=lambda entry: entry[1:]):
            members = [entry[0] for entry in group]
            words = [word for word in ("chain" * chain, "linear" * linear, _SKIP_WORDS[skip]) if word]
            label = f"site {members[0]}" if len(members) == 1 else f"sites {members[0]}-{members[-1]}"
            rows.append((label, " + ".join(words) or "nothing"))
        width = max(len(label) for label, _ in rows)
        noun = "site" if self.sites == 1 else "sites"
        head = f"Topology of {self.sites} {noun}: {count} term{'s' * (total != 1)}, {span}"
        return "\n".join([head, *(f"  {label:<{width}}  {text}" for label, text in rows)])


@lru_cache(maxsize=64)
def _made_once(name: str, sites: int) -> Topology:
    """Every module of a search has the same one, which takes longer to check than its weights to draw."""
    chain, linear, skip = PRESETS[name]
    return Topology(sites, (chain,) * (sites - 1), (linear,) * (sites - 1), (skip,) * (sites - 1))
