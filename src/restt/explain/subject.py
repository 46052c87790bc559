"""A module or a fitted estimator as one function of site vectors on the decision scale.

All other files read a :class:`Subject`. Members are averaged on the decision scale, which is affine in their outputs,
so the average is as multilinear as each of them.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from restt._common.errors import check_int, shown
from restt.diagonal import DiagonalTT
from restt.explain.columns import estimator_grid, estimator_labels, module_grid
from restt.explain.dense import DenseTrain
from restt.explain.products import Products, ProductTrain
from restt.explain.sweeps import row_chunks
from restt.module import ResTT
from restt.prior import Predictive
from restt.prior.laplace import LogitPosterior
from restt.prior.mixture import Mixture


@dataclass(frozen=True, eq=False)
class Subject:
    """A module in float64 that needs no gradients, and the names and scales of what goes in and comes out.

    Sites are in the module's order. Results are in the order of ``names``: for estimators that of the table's columns.
    """

    module: Any  # ResTT, DiagonalTT or Products
    columns: tuple[int, ...]  # N: the place of each site in results
    names: tuple[str, ...]  # C
    outputs: tuple[str, ...]  # D
    readout: Tensor  # (O, D)
    offset: Tensor  # (D,): decision = mean over members of outputs @ readout + offset
    estimator: Any = None
    error: Tensor | None = None  # (D,) of a distilled model

    @classmethod
    def of(cls, model: Any) -> Subject:
        """The subject of a module or a fitted estimator."""
        if isinstance(model, (ResTT, DiagonalTT)):
            module = copy.deepcopy(model).double().requires_grad_(False)
            eye = torch.eye(module.outputs, dtype=torch.float64, device=module.device)
            return cls(
                module,
                tuple(range(module.sites)),
                tuple(f"site {n}" for n in range(module.sites)),
                tuple(f"output {o}" for o in range(module.outputs)),
                eye,
                eye.new_zeros(module.outputs),
            )
        if isinstance(model, Subject):  # tree ensembles
            return model
        if hasattr(model, "subject"):  # distilled functions bring their own
            return model.subject()
        if not (hasattr(model, "fit") and hasattr(model, "numbers")):
            raise TypeError(
                f"model must be a restt.ResTT or a fitted estimator of restt, got {type(model).__name__}; "
                "restt.explain.from_trees and restt.explain.distil make one of other models"
            )
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(model)
        module = copy.deepcopy(model.module_).double().requires_grad_(False)
        readout, offset, outputs = _decision(model, module)
        columns = getattr(model, "feature_names_in_", [f"x{index}" for index in range(model.n_features_in_)])
        names = tuple(map(str, columns))
        return cls(module, tuple(model.encoding_.order), names, outputs, readout, offset, model)

    @property
    def device(self) -> torch.device:
        """The device of the module's numbers."""
        return self.module.device

    @property
    def sites(self) -> int:
        """N, the number of site vectors."""
        return self.module.sites

    def highest(self, max_order: int | None, default: int | None = None) -> int:
        """The highest order of a spectrum: at most N, by default all or ``default``."""
        order = default if max_order is None else check_int("max_order", max_order, minimum=1)
        return self.sites if order is None else min(self.sites, order)

    @property
    def nodes(self) -> int:
        """Gauss–Legendre nodes that integrate derivatives along a line exactly."""
        module = self.module
        degree = module.degree if isinstance(module, Products) else max(module.topology.orders(), default=1)
        return (degree + 1) // 2

    def row_chunks(self, rows: int, nodes: int) -> Iterator[slice]:
        """Slices of rows whose gradients at so many nodes fit into memory; products are read in blocks."""
        states = (self.module.runs or 1) * self.module.bond_dim if isinstance(self.module, ResTT) else 0
        return row_chunks(rows, nodes * self.sites * (4 * self.module.feature_dim + states), self.device)

    def vectors(self, x: Any, name: str = "x") -> Tensor:  # (B, N, I) float64
        """Site vectors of a module's features (B, N, I) or of an estimator's table; padding is zero."""
        if self.estimator is not None:
            numbers = torch.from_numpy(np.asarray(self.estimator.numbers(x), dtype=np.float64))
            vectors = self.estimator.encoding_.vectors(numbers)
        else:
            vectors = torch.as_tensor(x).detach()
            sites, width = self.module.sites, self.module.feature_dim
            if vectors.dim() != 3 or tuple(vectors.shape[1:]) != (sites, width):
                raise ValueError(
                    f"{name} must be site vectors of shape (B, {sites}, {width}), got {tuple(vectors.shape)}"
                )
            if not bool(torch.isfinite(vectors).all()):
                raise ValueError(f"{name} must be finite, got NaN or infinity")
        if len(vectors) == 0:
            raise ValueError(f"{name} must have at least one row, got none")
        vectors = vectors.to(device=self.device, dtype=torch.float64)
        return vectors if self.module.padding is None else vectors.masked_fill(self.module.padding, 0.0)

    def means(self, background: Any, zero: bool = False) -> Tensor:  # (N, I)
        """Site means of the background; without one those an estimator learned, 0 for a module where ``zero``."""
        if background is not None:
            return self.vectors(background, "background").mean(dim=0)
        if self.estimator is None:
            if not zero:
                raise ValueError(
                    "background must be given for a module: site vectors (M, N, I) that absent sites average"
                )
            return torch.zeros(self.sites, self.module.feature_dim, dtype=torch.float64, device=self.device)
        stored = getattr(self.estimator, "site_means_", None)
        if stored is None:
            raise ValueError(
                "background must be given: this estimator did not keep the mean site vectors of its rows; pass the "
                "table it was fitted on"
            )
        return torch.as_tensor(stored).to(device=self.device, dtype=torch.float64)

    @property
    def posterior(self) -> Predictive | LogitPosterior | None:
        """The posterior of an estimator in closed form, with some rows of its fit; None for other models."""
        posterior = getattr(self.estimator, "spread_", getattr(self.estimator, "posterior_", None))
        return posterior if isinstance(posterior, (Predictive, LogitPosterior)) else None

    @property
    def posteriors(self) -> list[tuple[Mixture, Tensor]]:
        """Posteriors of functions, and what each output (D,) is times such a function; 0 where it is another one's.

        Outputs of a regressor share the posterior of a standardised one. Without a posterior there are none.
        """
        if isinstance(self.posterior, Predictive):
            return [(self.posterior, torch.linalg.vector_norm(self.readout, dim=0).cpu())]
        if self.posterior is None:
            return []
        return list(zip(self.posterior.outputs, torch.eye(len(self.outputs), dtype=torch.float64), strict=True))

    @property
    def notes(self) -> list[str]:
        """Remarks of a printed explanation: that there are no error bars, or the error of a distilled model."""
        name, errors = type(self.estimator).__name__, [] if self.error is None else self.error.tolist()
        none = hasattr(self.estimator, "fit") and self.posterior is None
        share = getattr(self.posterior, "share", 1.0)
        off = ", ".join(f"{error:.2g}" for error in errors)
        return [
            *([f"no standard deviations: {name} has no posterior in closed form"] if none else []),
            *(
                [f"standard deviations: of its {share:.0%} Gaussian processes, not of its trains"]
                if share < 0.995
                else []
            ),
            *([f"distilled: off by {off} standard deviations on fresh points"] if errors else []),
        ]

    def rows(self, background: Any) -> Tensor:  # (M, N, I)
        """Site vectors of the background; without one those of the fit's rows that the model keeps."""
        if background is not None:
            return self.vectors(background, "background")
        if self.posterior is None:
            raise ValueError(
                "background must be given: this model keeps no rows of its fit; pass the table it was fitted on"
            )
        numbers = torch.from_numpy(np.asarray(self.posterior.numbers, dtype=np.float64))
        vectors: Tensor = self.estimator.encoding_.vectors(numbers)
        return vectors.to(device=self.device, dtype=torch.float64)

    def moments(self, background: Any) -> tuple[Tensor, Tensor | None]:  # (N, I), (N, I, I)
        """Mean and covariance of each site under the background, or as an estimator learned them."""
        if background is None:
            stored = getattr(self.estimator, "site_covariances_", None)
            if stored is None:
                raise ValueError(
                    "background must be given: variances need its rows (site vectors for a module, a table for an "
                    "estimator)"
                )
            return self.means(None), torch.as_tensor(stored).to(self.device, torch.float64)
        rows = self.vectors(background, "background")
        means = rows.mean(dim=0)
        centred = rows - means
        return means, torch.einsum("bni,bnj->nij", centred, centred) / len(rows)

    def cores(self) -> list[Tensor]:
        """The decision as N tensor-train cores (S, left, 1+I, right) over [1, x(n)], padded to one I.

        Each member's own; their mean over S is the decision.
        """
        wide, cores = 1 + self.module.feature_dim, []
        for core in self.module.cores():
            core = core if self.module.runs is not None else core[None]
            cores.append(torch.nn.functional.pad(core, (0, 0, 0, wide - core.shape[2])))
        cores[-1] = cores[-1] @ self.readout
        cores[-1][:, -1, 0] += self.offset
        return cores

    def train(self, means: Tensor) -> DenseTrain | ProductTrain:  # (N, I)
        """The decision as a train in which an absent site is at its mean."""
        if isinstance(self.module, DiagonalTT):
            return ProductTrain(Products.of(self.module, self.readout, self.offset), means)
        return DenseTrain(self.cores(), means)

    def decide(self, x: Tensor) -> Tensor:  # (B, N, I) -> (B, D)
        """The decision at site vectors, on the fastest chain backend; gradients flow to x."""
        outputs = self.module(x)
        if self.module.runs is not None:
            outputs = outputs.mean(dim=0)
        return outputs @ self.readout + self.offset

    def gradients(self, points: Tensor) -> Iterator[Tensor]:  # (B, N, I) -> D of (B, N, I)
        """The gradient of each output in every site vector, one output after the other: all at once may not fit."""
        points = points.detach().requires_grad_()
        with torch.enable_grad():
            totals = self.decide(points).sum(dim=0).unbind()
        for total in totals:
            yield torch.autograd.grad(total, points, retain_graph=True)[0]

    def path_slopes(
        self,
        starts: Tensor,  # (B, N, I)
        way: Tensor,  # (B, N, I)
        nodes: Tensor,  # (K,)
        weights: Tensor,  # (K,)
    ) -> Tensor:  # (B, N, D)
        """Σ_k weight · derivative at start + t_k·way along the part of ``way`` in each site."""
        parts = []
        for rows in self.row_chunks(len(way), len(nodes)):
            points = (starts[rows] + nodes[:, None, None, None] * way[rows]).flatten(0, 1)
            slopes = [
                torch.einsum("k,kbni,bni->bn", weights, gradient.unflatten(0, (len(nodes), -1)), way[rows])
                for gradient in self.gradients(points)
            ]
            parts.append(torch.stack(slopes, dim=-1))
        return torch.cat(parts)

    def grid(self, site: int, given: Any, background: Any) -> tuple[np.ndarray, Tensor]:  # (G,), (G, I)
        """The values of a site's column, those given or all of interest, and their site vectors."""
        if self.estimator is None:
            return module_grid(self.module, site, given, self.vectors(background, "background"))
        values, vectors = estimator_grid(self.estimator, site, given)
        return values, vectors.to(self.device)

    def labels(self, x: Any) -> np.ndarray | None:  # (B, C) object
        """A table's values as a reader knows them; None for a module."""
        return None if self.estimator is None else estimator_labels(self.estimator, x)

    def require_module(self) -> Subject:
        """Return itself; of a subject without a module of dense or diagonal cores raise a TypeError."""
        if isinstance(self.module, Products):
            raise TypeError("model must be a restt module or estimator here, got Trees: pass its to_module()")
        return self

    def in_columns(self, values: Tensor, dim: int) -> Tensor:
        """Values along sites put in the order of results; a column that no site reads has 0."""
        shape = list(values.shape)
        shape[dim] = len(self.names)
        places = torch.tensor(self.columns, device=values.device)
        return values.new_zeros(shape).index_copy(dim, places, values)

    def by_column(self, values: Tensor) -> list[Tensor]:  # (…, N, I) -> C of (…, I_n)
        """Site vectors in the order of the table's columns, without padding, as the posterior reads them."""
        widths = self.module.feature_dims
        return [values[..., place, : widths[place]].cpu() for place in np.argsort(self.columns).tolist()]

    def sites_of(self, columns: Any, name: str = "columns") -> tuple[int, ...]:
        """The sites of columns given by name or number: distinct ones, in the order given."""
        single = isinstance(columns, (str, int, np.integer)) and not isinstance(columns, bool)
        if not single and not isinstance(columns, Iterable):
            raise TypeError(f"{name} must be columns by name or number, got {shown(columns)}")
        chosen = [columns] if single else list(columns)
        sites = tuple(self._site(column, name) for column in chosen)
        if len(set(sites)) != len(sites):
            raise ValueError(f"{name} must be distinct, got {shown(chosen)}")
        return sites

    def _site(self, column: Any, name: str) -> int:
        if isinstance(column, str):
            if column not in self.names:
                raise ValueError(f"{name} has {column!r}, which is not one of {shown(list(self.names))}")
            column = self.names.index(column)
        if isinstance(column, bool) or not isinstance(column, (int, np.integer)):
            raise TypeError(f"{name} must be columns by name or number, got {shown(column)}")
        if not 0 <= column < len(self.names):
            raise ValueError(f"{name} must be in 0…{len(self.names) - 1}, got {column}")
        if column not in self.columns:
            raise ValueError(f"{name} has {self.names[column]!r}, which the model does not use")
        return self.columns.index(int(column))


def _decision(estimator: Any, module: ResTT | DiagonalTT) -> tuple[Tensor, Tensor, tuple[str, ...]]:
    """The map from a member's outputs to the decision: y's units for a regressor, logits for a classifier."""
    target = estimator.target_
    eye = torch.eye(module.outputs, dtype=torch.float64, device=module.device)
    if hasattr(target, "classes"):
        classes = tuple(map(str, target.classes.tolist()))
        readout = eye / target.temperature
        if len(classes) == 2:  # decision_function: the second's log-odds
            readout, classes = readout[:, 1:] - readout[:, :1], classes[1:]
        return readout, eye.new_zeros(readout.shape[1]), classes
    scale, mean = (torch.as_tensor(value).to(eye).reshape(-1) for value in (target.scale, target.mean))
    label = getattr(target, "label", "y")
    names = (label,) if len(scale) == 1 else tuple(f"{label}{o}" for o in range(len(scale)))
    return eye * scale, mean, names
