"""Training of a tree of isometries, one tensor after the other, by the singular value decomposition of environments.

The source's cost is the overlap of the outputs with the labels, F = Σ_b t(b)ᵀ out(b). It is linear in every tensor T,
F = tr(T Eᵀ), and among all isometries the one that makes it largest is U Vᵀ, where E = U S Vᵀ is the environment: what
remains of F when T is taken out. So no update lowers F, and there is no rate. But F alone only draws outputs towards
the mean of their class.

The cross-entropy of softmax(sharpness · out/length) also sees which rows are wrong, but is not linear in T: U Vᵀ of its
environment, minus its gradient by T, overshoots. An update therefore takes U Vᵀ of E + damping · T, the nearer to T the
larger the damping, and is accepted only if the cross-entropy of all rows does not rise; otherwise the damping grows and
the update is tried again. Environment and cross-entropy are those of the tree at that moment. Environments taken once
for a whole sweep let all tensors correct the same errors at once: then every other sweep undoes the one before it.

The length is that of the row's output with a share of the mean over all rows: by |out| alone, a few rows that are
nearly orthogonal to the tree's space turn at the slightest change of a tensor, and no step is small enough.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from restt_baselines.tensor.isometric_tree import (
    CHILDREN,
    IsometricTree,
    children,
    layer_side,
    nearest_isometry,
    product,
)

# Of the damping after an accepted update and after a refused one, its range, and how often an update is tried.
STEP_CONTROL = {"shrink": 0.7, "grow": 2.0, "least": 0.1, "most": 1e4, "tries": 4}
# Share of the outputs' root mean square length that is added, in squares, to the length of each.
SHARED_LENGTH = 1.0
TINY = torch.finfo(torch.float32).tiny


class TreeSweeps:
    """Updates the tensors of a tree in place.

    Isometries shorten product states. Vectors, and slopes of the output by them, are therefore kept times a number for
    each node that makes their mean square 1: a factor of F, and nothing to the cross-entropy, which sees directions.

    Parameters
    ----------
    sharpness : float
        Of the softmax in the cross-entropy.
    damping : float
        How much a tensor counts beside its environment, brought to singular values of mean square 1, at first.
    updates : int
        By the cross-entropy, of a tensor at each visit.

    Attributes
    ----------
    damping : list of list of float
        Of each tensor, as its next update tries first.
    """

    def __init__(
        self,
        tree: IsometricTree,
        x: Tensor,  # (side², B, I)
        target: Tensor,  # (B, O)
        *,
        sharpness: float = 8.0,
        damping: float = 10.0,
        updates: int = 1,
    ) -> None:
        self.tree, self.target = tree, target
        self.sharpness, self.updates = sharpness, updates
        self.damping = [[damping] * len(layer) for layer in tree.tensors]
        self.vectors = [list(x), *tree.layers(list(x), _scaled)]

    @torch.no_grad()
    def by_overlap(self) -> Iterator[Tensor]:
        """One sweep, depth first; gives F, times what the scales make of it, after each tensor."""
        yield from self._sweep(self._largest_overlap)

    @torch.no_grad()
    def by_entropy(self) -> Iterator[Tensor]:
        """One sweep, depth first; gives the cross-entropy of all rows, which does not rise, after each tensor."""
        yield from self._sweep(self._less_entropy)

    def entropy(self, outputs: Tensor) -> Tensor:  # (B, O)
        """Σ_b of the cross-entropy of softmax(sharpness · out/length)."""
        square = outputs.square().sum(1, keepdim=True)
        length = (square + SHARED_LENGTH**2 * square.mean()).clamp(min=TINY).sqrt()
        logs = (self.sharpness * outputs / length).log_softmax(1)
        return -(self.target * logs).double().sum()

    def pull(self, outputs: Tensor) -> Tensor:  # (B, O)
        """Minus the gradient of the cross-entropy by the outputs."""
        with torch.enable_grad():
            outputs = outputs.detach().requires_grad_()
            (slope,) = torch.autograd.grad(self.entropy(outputs), outputs)
        return -slope

    def _sweep(self, visit: Visit) -> Iterator[Tensor]:
        rows, outputs = self.target.shape
        slope = torch.eye(outputs).to(self.target).expand(rows, -1, -1)
        yield from self._below_then(visit, len(self.tree.tensors) - 1, 0, slope)

    def _below_then(
        self,
        visit: Visit,
        layer: int,
        node: int,
        slope: Tensor,  # (B, O, D_out), of the outputs by this node's vectors
    ) -> Iterator[Tensor]:
        tensors = self.tree.tensors[layer]
        below = children(node, layer_side(tensors))
        if layer > 0:
            for place, child in enumerate(below):
                vectors = [self.vectors[layer][each] for each in below]
                lower = _scaled(slope @ slope_of_child(tensors[node], vectors, place))
                yield from self._below_then(visit, layer - 1, child, lower)
        wide = product([self.vectors[layer][child] for child in below])
        cost = visit(layer, node, wide, slope)
        self.vectors[layer + 1][node] = _scaled(wide @ tensors[node].T)
        yield cost

    def _largest_overlap(self, layer: int, node: int, wide: Tensor, slope: Tensor) -> Tensor:
        environment = _pulled(self.target, slope).T @ wide
        tensor = nearest_isometry(environment)
        self.tree.tensors[layer][node] = tensor
        return (tensor * environment).double().sum()

    def _less_entropy(self, layer: int, node: int, wide: Tensor, slope: Tensor) -> Tensor:
        tensor, damping = self.tree.tensors[layer][node], self.damping[layer][node]
        outputs = _outputs(slope, wide @ tensor.T)
        cost = self.entropy(outputs)
        for _ in range(self.updates):
            environment = _pulled(self.pull(outputs), slope).T @ wide
            size = float(torch.linalg.matrix_norm(environment)) / math.sqrt(len(environment))
            # Zero where the outputs do not depend on this tensor.
            if not 0 < size < math.inf:
                break
            for _ in range(int(STEP_CONTROL["tries"])):
                trial = nearest_isometry(environment / size + damping * tensor)
                trial_outputs = _outputs(slope, wide @ trial.T)
                trial_cost = self.entropy(trial_outputs)
                if trial_cost <= cost:
                    tensor, outputs, cost = trial, trial_outputs, trial_cost
                    damping = max(STEP_CONTROL["shrink"] * damping, STEP_CONTROL["least"])
                    break
                damping = min(STEP_CONTROL["grow"] * damping, STEP_CONTROL["most"])
        self.tree.tensors[layer][node], self.damping[layer][node] = tensor, damping
        return cost


# Updates the tensor of (layer, node), given the products (B, D_in⁴) it maps and the slope, and gives the cost then.
Visit = Callable[[int, int, Tensor, Tensor], Tensor]


def slope_of_child(tensor: Tensor, vectors: list[Tensor], place: int) -> Tensor:  # (D_out, D⁴), (B, D) each
    """∂(a node's vector)/∂(the vector of its child at ``place``), (B, D_out, D).

    >>> slope_of_child(torch.ones(3, 16), [torch.ones(5, 2)] * 4, place=1)[0]
    tensor([[8., 8.],
            [8., 8.],
            [8., 8.]])
    """
    width = vectors[0].shape[1]
    before, after = width**place, width ** (CHILDREN - 1 - place)
    others = product([*vectors[:place], *vectors[place + 1 :]])
    matrix = tensor.view(-1, before, width, after).transpose(1, 2).reshape(-1, before * after)
    return (others @ matrix.T).view(len(others), -1, width)


def _pulled(pull: Tensor, slope: Tensor) -> Tensor:  # (B, O), (B, O, D) -> (B, D)
    return torch.einsum("bo,bod->bd", pull, slope)


def _outputs(slope: Tensor, vectors: Tensor) -> Tensor:  # (B, O, D), (B, D) -> (B, O)
    return torch.einsum("bod,bd->bo", slope, vectors)


def _scaled(vectors: Tensor) -> Tensor:  # (B, …)
    size = (vectors.double().square().sum() / len(vectors)).sqrt().clamp(min=torch.finfo(vectors.dtype).tiny)
    return vectors / size.to(vectors)
