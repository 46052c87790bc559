"""The multilinear expansion of a model: its part of each order, its single terms, and the whole polynomial."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from restt._common.errors import check_positive
from restt.explain.dense import DenseTrain
from restt.explain.subject import Subject

# Coefficients beyond which a polynomial is nothing to read: 2 MiB of numbers.
MOST_TERMS = 2**18


@torch.no_grad()
def order_spectrum(model: Any, x: Any, background: Any = None, max_order: int | None = None) -> Tensor:  # (B, N+1, O)
    """The contribution of each order 0 … N of interaction to each prediction; they sum to it.

    With every site vector written as mean + t·(x - mean), the prediction is a polynomial in t whose coefficient of
    t^d is the sum of all interactions of exactly d sites. A chain whose states are polynomials gives them all.

    Parameters
    ----------
    model : restt.ResTT or fitted estimator
    x : (B, N, I) site vectors for a module, a table for an estimator
    background : the same, optional
        Rows whose mean site vectors stand for absence. Without it a module's orders are those of raw products (absent
        is 0), an estimator's are centred at the rows it was fitted on.
    max_order : int, optional
        Stop here: orders 0 … max_order only, at a cost that grows with them. What the sum then lacks of the prediction
        is the higher orders' part.

    Returns
    -------
    (B, N+1, O) or (B, max_order+1, O) float64, index = order; for estimators on the decision scale.

    Examples
    --------
    >>> import restt, torch
    >>> model = restt.ResTT(sites=5, feature_dim=2, bond_dim=3, outputs=1, dtype=torch.float64)
    >>> x = torch.rand(7, 5, 2, dtype=torch.float64)
    >>> spectrum = order_spectrum(model, x, background=x)
    >>> spectrum.shape, torch.allclose(spectrum.sum(1), model(x))
    (torch.Size([7, 6, 1]), True)
    """
    subject = Subject.of(model)
    vectors, means = subject.vectors(x), subject.means(background, zero=True)
    return subject.train(means).spectrum(vectors - means, subject.highest(max_order))


@torch.no_grad()
def interaction(model: Any, x: Any, sites: Any, background: Any = None) -> Tensor:  # (B, O)
    """One term of the expansion: what exactly these sites contribute together to each prediction.

    Parameters
    ----------
    model, x, background
        As in :func:`order_spectrum`: raw products for a module without a background, else centred (ANOVA) terms, of
        which the one of no site is the prediction at the means and all 2^N sum to the prediction.
    sites : sites from 0, or for an estimator columns by name or number; empty for the constant

    Returns
    -------
    (B, O) float64

    Examples
    --------
    >>> import restt, torch
    >>> model = restt.ResTT(sites=2, feature_dim=1, bond_dim=2, outputs=1, dtype=torch.float64)
    >>> x = torch.rand(4, 2, 1, dtype=torch.float64)
    >>> parts = [interaction(model, x, sites) for sites in ([], [0], [1], [0, 1])]
    >>> torch.allclose(sum(parts), model(x))
    True
    """
    subject = Subject.of(model)
    members, means = subject.sites_of(sites, "sites"), subject.means(background, zero=True)
    away = subject.vectors(x) - means
    return subject.train(means).term({n: away[:, n] for n in members}).mean(dim=0).expand(len(away), -1)


@dataclass(frozen=True, eq=False)
class Polynomial:
    """``terms`` maps the variables of each product, () for the constant, to its coefficient in every output, (O,)."""

    terms: dict[tuple[str, ...], Tensor]
    outputs: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(f"{output} = {self.formula(o)}" for o, output in enumerate(self.outputs))

    def formula(self, output: int = 0, digits: int = 4) -> str:
        """One output as a line of text."""
        parts = []
        for variables, coefficients in self.terms.items():
            number = float(coefficients[output])
            if number:
                sign = "-" if number < 0 else "+"
                parts.append(f"{sign} {'·'.join([f'{abs(number):.{digits}g}', *variables])}")
        text = " ".join(parts) or "0"
        return text.removeprefix("+ ") if not text.startswith("- ") else "-" + text[2:]


@torch.no_grad()
def polynomial(model: Any, tolerance: float = 0.0) -> Polynomial:
    """The model as the multilinear polynomial in its site vectors that it is, for few and narrow sites.

    Parameters
    ----------
    model : restt.ResTT or fitted estimator
        With at most 2^18 coefficients, Π(1 + I_n)·O. The variable of entry i of site n is ``xn[i]``, or ``xn`` where
        the site has width 1; an estimator's are called after its columns, and are entries of their site vectors.
    tolerance : float
        Leave out terms whose coefficients are all at most this in size.

    Examples
    --------
    >>> import restt, torch
    >>> model = restt.ResTT(sites=2, feature_dim=1, bond_dim=1, outputs=1, dtype=torch.float64)
    >>> with torch.no_grad():
    ...     for parameter, value in zip(model.parameters(), (2.0, 3.0, -1.0, 0.5)):
    ...         _ = parameter.fill_(value)
    >>> print(polynomial(model))
    output 0 = 1·x0 - 1·x1 + 6·x0·x1
    """
    tolerance = check_positive("tolerance", tolerance, allow_zero=True)
    subject = Subject.of(model).require_module()
    widths = subject.module.feature_dims
    size = math.prod(1 + width for width in widths) * len(subject.outputs)
    if size > MOST_TERMS:
        raise ValueError(
            f"model must have at most {MOST_TERMS} coefficients to be written out, got {size}; "
            "top_interactions lists the largest terms of any model"
        )
    tensor = torch.ones(1, 1, dtype=torch.float64, device=subject.device)  # (products so far, bond)
    variables: list[tuple[str, ...]] = [()]
    zero = tensor.new_zeros(subject.sites, subject.module.feature_dim)
    cores = DenseTrain(subject.cores(), zero).merged()
    for n, (core, width) in enumerate(zip(cores, widths, strict=True)):
        name = f"x{n}" if subject.estimator is None else subject.names[subject.columns[n]]
        own = [(), *([(name,)] if width == 1 else [(f"{name}[{entry}]",) for entry in range(width)])]
        tensor = torch.einsum("pl,lir->pir", tensor, core[:, : 1 + width]).flatten(0, 1)
        variables = [(*earlier, *factor) for earlier in variables for factor in own]
    kept = [place for place in range(len(tensor)) if float(tensor[place].abs().max()) > tolerance]
    kept.sort(key=lambda place: (len(variables[place]), variables[place]))
    return Polynomial({variables[place]: tensor[place] for place in kept}, subject.outputs)
