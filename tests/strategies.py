"""Hypothesis strategies and small builders shared by the tests."""

from __future__ import annotations

from itertools import product

import hypothesis.strategies as st

from restt.topology import SKIP_MODES, Topology


def topologies(min_sites: int = 1, max_sites: int = 6) -> st.SearchStrategy[Topology]:
    """Random topologies: every connection of every site on its own."""

    def with_sites(sites: int) -> st.SearchStrategy[Topology]:
        flags = st.tuples(*[st.booleans()] * (sites - 1))
        modes = st.tuples(*[st.sampled_from(SKIP_MODES)] * (sites - 1))
        return st.builds(Topology, st.just(sites), flags, flags, modes)

    return st.integers(min_sites, max_sites).flatmap(with_sites)


def every_topology(sites: int) -> list[Topology]:
    """All of them: 12 choices per site after the first."""
    choices = list(product((False, True), (False, True), SKIP_MODES))
    return [
        Topology(sites, tuple(c for c, _, _ in sites_), tuple(l for _, l, _ in sites_), tuple(s for _, _, s in sites_))
        for sites_ in product(choices, repeat=sites - 1)
    ]
