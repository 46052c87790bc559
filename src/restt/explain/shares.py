"""Shares of the variance of the predictions over rows as they are, dependent columns included.

Since the terms sum to the prediction, Var f = Σ_T Cov(f_T, f) over any rows: a covariance decomposition, whose shares
sum to one and can be negative where a term takes back what others say. A column's share is that of its Shapley values,
and sums over columns to one as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from restt._common.errors import check_int
from restt.explain.links import link_of
from restt.explain.shapley import along_paths
from restt.explain.sobol import share_of, top_interactions
from restt.explain.subject import Subject
from restt.explain.tables import Printed, data_frame, records_of
from restt.prior.functionals import posterior_draws, prior_covariances


@dataclass(frozen=True)
class ShareSettings:
    """Sizes of the lists, samples and draws behind shares."""

    terms: int = 10  # of largest variance under independent columns; with the rest and the sum a dozen lines
    term_order: int = 4
    orders: int = 8
    rows: int = 100  # of a sample on which the posterior is drawn: a share's own sampling error is then below a tenth
    draws: int = 1000  # a probability of 0.05 is known to within 0.007
    seed: int = 0
    columns: int = 20  # of largest total share that have error bars: each costs as much as a term
    least: float = 0.01  # the share above which a term counts as one
    sure: float = 0.95  # the probability of that below which it is drawn grey


SETTINGS = ShareSettings()


class ShareErrors(NamedTuple):
    """The posterior of shares: their standard deviation, and how probable it is that a part is there at all.

    ``probability`` is that of a variance of the part itself over the rows above ``least`` of that of the function: only
    what is nothing has none, where a covariance share may be 0 by what other columns do.
    """

    std: np.ndarray  # (K, O)
    probability: np.ndarray  # (K, O)


@dataclass(frozen=True, eq=False, repr=False)
class VarianceShares(Printed):
    """Shares of the variance of the predictions over rows, on the latent scale, float64.

    ``term_errors`` and ``column_errors`` are of the posterior, by ``draws`` draws on a sample of the rows; None for a
    model without one. Those of columns are of ``total``, for the twenty of largest share; others are NaN.
    """

    names: tuple[str, ...]
    outputs: tuple[str, ...]
    rows: int
    variance: np.ndarray  # (O,)
    terms: tuple[tuple[int, ...], ...]  # K
    of_terms: np.ndarray  # (K, O)
    rest: np.ndarray  # (O,): all other terms
    of_columns: np.ndarray  # (C, O): of Shapley values; they sum to one
    alone: np.ndarray  # (C, O): of main effects
    total: np.ndarray  # (C, O): of all terms with a column
    of_orders: np.ndarray  # (highest+1, O), index = order; entry 0 is 0
    term_errors: ShareErrors | None
    column_errors: ShareErrors | None
    settings: ShareSettings = SETTINGS
    scale: str = "latent"

    def label(self, place: int) -> str:
        """A term's columns."""
        return " × ".join(self.names[n] for n in self.terms[place])

    def to_frame(self, of: str = "terms") -> Any:
        """One row per term (or with ``of="columns"`` per column) and output."""
        if of not in ("terms", "columns"):
            raise ValueError(f'of must be "terms" or "columns", got {of!r}')
        if of == "terms":
            return data_frame(self._records())
        numbers = {"share": self.of_columns, "alone": self.alone, "total": self.total, **_errors(self.column_errors)}
        return data_frame(records_of({"column": self.names}, self.outputs, numbers))

    def _title(self) -> tuple[str, str]:
        return "Shares of the variance of the rows", f"over {self.rows} rows as they are, on the {self.scale} scale"

    def _records(self) -> list[dict[str, Any]]:
        terms = [self.label(place) for place in range(len(self.terms))]
        numbers = {"share": self.of_terms, **_errors(self.term_errors)}
        return records_of({"term": terms, "order": [len(term) for term in self.terms]}, self.outputs, numbers)


def _errors(errors: ShareErrors | None) -> dict[str, np.ndarray]:
    return {} if errors is None else errors._asdict()


@torch.no_grad()
def variance_shares(
    model: Any,
    background: Any = None,
    terms: Sequence[Any] | None = None,
    settings: ShareSettings = SETTINGS,
) -> VarianceShares:
    """Shares of the variance of the predictions over rows as they are: of terms, columns and orders.

    Var f = Σ_T Cov(f_T, f) over the rows, f_T the centred terms. For an estimator in closed form each share of a term
    has a posterior standard deviation, and each term the posterior probability that its own variance is more than one
    per cent of the whole, from draws of the term and of the function together on a sample of the rows.

    Parameters
    ----------
    model : restt.ResTT or fitted estimator
    background : (M, N, I) site vectors for a module, a table for an estimator
        The rows. An estimator in closed form has some of its fit's by default, at most 768.
    terms : sequence of columns or of tuples of columns, optional
        Terms to list, by name or number; by default the ten of largest variance under independent columns.
    settings : ShareSettings, optional

    Examples
    --------
    >>> import restt, torch
    >>> model = restt.ResTT(sites=4, feature_dim=2, bond_dim=3, outputs=1, dtype=torch.float64)
    >>> shares = variance_shares(model, torch.rand(50, 4, 2, dtype=torch.float64))
    >>> [round(float(part.sum()), 9) for part in (shares.of_columns, shares.of_orders)]
    [1.0, 1.0]
    """
    subject = Subject.of(model)
    rows, means = subject.rows(background), subject.means(background)
    if terms is None:
        largest = top_interactions(model, background, settings.terms, min(subject.sites, settings.term_order)).terms
        chosen = [tuple(subject.columns.index(column) for column in term.columns) for term in largest]
    else:
        chosen = [subject.sites_of(columns, "terms") for columns in terms]
        if not chosen:
            raise ValueError("terms must name one or more terms, got none")
    train, away, latent = subject.train(means), rows - means, subject.decide(rows)
    deviation = latent - latent.mean(dim=0)
    variance = deviation.square().mean(dim=0)

    def shares(parts: Tensor) -> np.ndarray:  # (B, K, D) -> (K, D)
        return share_of(torch.einsum("bkd,bd->kd", parts, deviation) / len(rows), variance).cpu().numpy()

    def of_sites(members: list[tuple[int, ...]]) -> Tensor:  # (B, K, D)
        return torch.stack([train.term({n: away[:, n] for n in sites}).mean(0) for sites in members], 1)

    of_terms = shares(of_sites(chosen))
    orders = shares(train.spectrum(away, min(subject.sites, check_int("orders", settings.orders, minimum=1))))
    orders[0] = 0.0
    shapley = along_paths(subject, rows, means.expand_as(rows))
    whole = torch.stack([latent - subject.decide(_at(rows, n, means[n])) for n in range(subject.sites)], 1)
    columns = [shares(part) for part in (shapley, of_sites([(n,) for n in range(subject.sites)]), whole)]
    of_columns, alone, total = (subject.in_columns(torch.from_numpy(part), 0).numpy() for part in columns)
    link = link_of(subject.estimator)
    errors: tuple[ShareErrors | None, ShareErrors | None] = (None, None)
    if subject.posterior is not None and bool((variance > 0).any()):
        ranked = np.argsort(-np.abs(columns[2]).sum(axis=1), kind="stable")[: settings.columns]
        errors = _posterior_errors(subject, rows, means, chosen, ranked.tolist(), settings)
    return VarianceShares(
        subject.names,
        subject.outputs,
        len(rows),
        variance.cpu().numpy(),
        tuple(tuple(sorted(subject.columns[site] for site in members)) for members in chosen),
        of_terms,
        np.where(variance.cpu().numpy() > 0, 1 - of_terms.sum(axis=0), 0.0),
        of_columns,
        alone,
        total,
        orders,
        *errors,
        settings,
        link.unit if link is not None and link.identical else "latent",
    )


def _at(rows: Tensor, site: int, vector: Tensor) -> Tensor:
    """Rows (B, N, I) with one site at a vector (I,), or at one for each row."""
    moved = rows.clone()
    moved[:, site] = vector
    return moved


def _posterior_errors(
    subject: Subject,
    rows: Tensor,  # (B, N, I)
    means: Tensor,  # (N, I)
    terms: Sequence[tuple[int, ...]],
    sites: Sequence[int],
    settings: ShareSettings,
) -> tuple[ShareErrors, ShareErrors]:
    """Posterior errors of the shares of terms, and of all terms with each of some columns, on a sample of the rows."""
    place = np.random.default_rng(settings.seed).permutation(len(rows))[: settings.rows]
    sample = rows[torch.from_numpy(place).to(rows.device)]
    posteriors = subject.posteriors
    # A single posterior has all outputs, those of one value too.
    parts = [(posterior, sizes, (sizes > 0) | (len(posteriors) == 1)) for posterior, sizes in posteriors]
    size = torch.stack([sizes for _, sizes, _ in parts]).sum(0)  # an output is one function's, or none's
    train, away, latent = subject.train(means), sample - means, subject.decide(sample)

    def drawn(product: Tensor, value: Tensor) -> np.ndarray:  # (B, N, I), (B, D) -> (2, D)
        """Standard deviation of the share of a part, and how probable it is that it exceeds the least.

        A part is given by its site vectors and its posterior mean.
        """
        products, centre = subject.by_column(torch.cat([product, sample])), torch.cat([value, latent]).cpu()
        draws = centre.expand(settings.draws, -1, -1).clone()
        priors = prior_covariances(parts[0][0], products)  # the same for all classes
        for posterior, sizes, own in parts:
            middle = torch.where(sizes > 0, centre / sizes, 0.0)[:, own]
            draws[..., own] = sizes[own] * posterior_draws(posterior, priors, middle, settings.draws, settings.seed)
        part, whole = draws.split(len(sample), dim=1)  # (draws, B, D)
        part, whole = part - part.mean(dim=1, keepdim=True), whole - whole.mean(dim=1, keepdim=True)
        variance = whole.square().sum(1)
        known = (variance > 0) & (size > 0)
        ratios = [torch.where(known, (part * of).sum(1) / variance, 0.0) for of in (whole, part)]
        share, own = ratios
        return torch.stack([share.std(dim=0, correction=0), (own > settings.least).double().mean(dim=0)]).numpy()

    of_terms, of_columns = [], np.full((2, len(subject.names), latent.shape[1]), np.nan)
    for members in terms:
        product = means.expand_as(sample).clone()
        product[:, list(members)] = away[:, list(members)]
        of_terms.append(drawn(product, train.term({n: away[:, n] for n in members}).mean(dim=0)))
    for n in sites:
        of_columns[:, subject.columns[n]] = drawn(
            _at(sample, n, away[:, n]), latent - subject.decide(_at(sample, n, means[n]))
        )
    return ShareErrors(*np.stack(of_terms, axis=1)), ShareErrors(*of_columns)
