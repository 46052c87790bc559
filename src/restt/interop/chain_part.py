"""The chain as a graph: sites 2…N-1 are one loop body over stacked weights, so N does not change the graph's size."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from restt.interop.ops import GraphPart, Ops, Value
from restt.module import ResTT


class ChainPart(GraphPart):
    """Site features (B, N, I) -> the module's outputs, always with the runs axis: (S, B, O).

    The topology's per-site switches become numbers that are scanned along with the weights, 0 for what a site lacks.
    """

    def __init__(self, module: ResTT) -> None:
        super().__init__()
        self.topology, weights = module.topology, module.weights()
        self.sites, self.merged = module.sites, module.feature_dim * module.bond_dim
        self.padding = _optional(module.padding)
        self.first = nn.Buffer(_frozen(weights.first))
        self.bias = _optional(module.bias)
        if self.sites == 1:
            return
        chains, linears, skips = self.topology.chains, self.topology.linears, self.topology.skips
        self.last_chain = _optional(weights.last_chain, flatten=1)
        self.last_linear = _optional(weights.last_linear)
        self.last_skip = _optional(weights.last_skip)
        runs, _, bond = weights.first.shape
        self.nothing = nn.Buffer(torch.zeros(runs, bond, weights.outputs, dtype=weights.first.dtype))
        self.chain = _scanned(weights.chain, chains[:-1], flatten=2)
        self.linear = _scanned(weights.linear, linears[:-1])
        self.stays = nn.Buffer(self._switches([skip == "full" for skip in skips[:-1]]))
        self.leaves = nn.Buffer(self._switches([skip == "output" for skip in skips[:-1]]))

    def _switches(self, flags: Sequence[bool]) -> Tensor:
        return torch.tensor(flags, dtype=self.first.dtype)

    def build(self, ops: Ops, x: Value) -> Value:
        if self.padding is not None:
            x = ops.where(ops.constant(self.padding), ops.number(0.0), x)
        y = ops.matmul(ops.take(x, 1, 0), ops.constant(self.first))
        output = y if self.sites == 1 else self._from_first(ops, x, y)
        return output if self.bias is None else ops.add(output, ops.constant(self.bias))

    def _from_first(self, ops: Ops, x: Value, y: Value) -> Value:
        leaving = None
        if self.sites > 2:
            y, leaving = self._inner_sites(ops, ops.swap_first_two(ops.cut(x, 1, 1, -1)), y)
        if self.topology.ends_with_skip:
            leaving = y if leaving is None else ops.add(leaving, y)
        last, terms = ops.take(x, 1, -1), []
        if self.last_chain is not None:
            terms.append(ops.matmul(self._outer(ops, y, last), ops.constant(self.last_chain)))
        if self.last_linear is not None:
            terms.append(ops.matmul(last, ops.constant(self.last_linear)))
        if leaving is not None:
            assert self.last_skip is not None
            terms.append(ops.matmul(leaving, ops.constant(self.last_skip)))
        if not terms:
            return ops.matmul(ops.zeros_like(y), ops.constant(self.nothing))
        return _sum(ops, terms)

    def _inner_sites(self, ops: Ops, x: Value, y: Value) -> tuple[Value, Value | None]:
        scanned = [x, *(ops.constant(weights) for weights in (self.chain, self.linear) if weights is not None)]
        carried, flags = [y], [self.stays]
        if self.topology.has_output_skip:
            carried, flags = [y, ops.zeros_like(y)], [self.stays, self.leaves]
        final = ops.scan(self._step, carried, [*scanned, *(ops.constant(flag) for flag in flags)])
        return final[0], final[1] if self.topology.has_output_skip else None

    def _step(self, ops: Ops, carried: list[Value], slices: list[Value]) -> list[Value]:
        """Eq. 11 at one site: y(n) = y(n-1) + Σ_i x(n,i) y(n-1) W(n,1)_i + x(n) W(n,2), what the site has of it."""
        y, remaining = carried[0], list(slices)
        x, terms = remaining.pop(0), []
        if self.chain is not None:
            terms.append(ops.matmul(self._outer(ops, y, x), remaining.pop(0)))
        if self.linear is not None:
            terms.append(ops.matmul(x, remaining.pop(0)))
        terms.append(ops.multiply(y, remaining.pop(0)))
        following = [_sum(ops, terms)]
        if self.topology.has_output_skip:
            following.append(ops.add(carried[1], ops.multiply(y, remaining.pop(0))))
        return following

    def _outer(self, ops: Ops, y: Value, x: Value) -> Value:
        """x ⊗ y (S, B, I·R) of the state (S, B, R) and one site's features (B, I), features slowest."""
        product = ops.multiply(ops.insert_axis(x, -1), ops.insert_axis(y, -2))
        return ops.merge_last_two(product, self.merged)


def _sum(ops: Ops, terms: Sequence[Value]) -> Value:
    total = terms[0]
    for term in terms[1:]:
        total = ops.add(total, term)
    return total


def _frozen(tensor: Tensor) -> Tensor:
    """A copy that no training and no device reaches."""
    return tensor.detach().to("cpu", copy=True)


def _optional(weights: Tensor | None, flatten: int | None = None) -> Tensor | None:
    if weights is None:
        return None
    return nn.Buffer(_frozen(weights if flatten is None else weights.flatten(flatten, flatten + 1)))


def _scanned(weights: Tensor | None, used: Sequence[bool], flatten: int | None = None) -> Tensor | None:
    """Stacked weights (S, N-2, …) with the site axis first, zero at the sites that lack the connection."""
    if weights is None:
        return None
    held = _frozen(weights)
    held[:, ~torch.tensor(used, dtype=torch.bool)] = 0
    if flatten is not None:
        held = held.flatten(flatten, flatten + 1)
    return nn.Buffer(held.transpose(0, 1).contiguous())
