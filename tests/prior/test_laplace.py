"""Laplace posteriors of classifiers' logits, against dense Gaussian processes of every class."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import factorial

import numpy as np
import pytest
import torch
from scipy.linalg import block_diag
from scipy.special import softmax

from restt import ResTTClassifier
from restt.explain.sweeps import legendre
from restt.prior.functionals import path_deviations, posterior_draws, prior_covariances, product_covariance
from restt.prior.laplace import CONSTANT, LogitPosterior, Mode, kept_rows
from restt.prior.mixture import Conditioned


def table(classes: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((24, 3))
    x[3, 1] = np.nan
    score = x[:, 0] + np.nan_to_num(x[:, 1]) * x[:, 2] + 0.3 * rng.standard_normal(24)
    return x, np.digitize(score, [-0.5, 0.6][: classes - 1])


@pytest.fixture(scope="module", params=[2, 3], ids=["two classes", "three classes"])
def posterior(request) -> LogitPosterior:
    found = ResTTClassifier(random_state=0).fit(*table(request.param)).posterior_
    assert len(found.numbers) == 24
    assert len(found.weights) > 1
    return found


def dense(found: LogitPosterior, member: int, vectors: list[torch.Tensor]) -> np.ndarray:  # (A, K, A, K)
    """Posterior covariance of all classes' logits at site vectors, K independent processes: K - K*ᵀW(1 + KW)⁻¹K*.

    Logits are centred over the classes at the end: a common part is not seen by the softmax.
    """
    process = found._process(member, 1.0)
    rows = found.kernel.vectors(found.contrasts.inducing)
    own, cross, among = (
        product_covariance(process, left, right).numpy()
        for left, right in ((vectors, vectors), (vectors, rows), (rows, rows))
    )
    p, eye = softmax(found.logits[member], axis=1), np.eye(found.classes)
    curvature = block_diag(*(w * (np.diag(q) - np.outer(q, q)) for w, q in zip(found.row_weights, p, strict=True)))
    between, wide = np.kron(among, eye), np.kron(cross, eye)
    known = wide @ curvature @ np.linalg.solve(np.eye(len(between)) + between @ curvature, wide.T)
    centred = np.kron(np.eye(len(own)), eye - 1 / found.classes)
    full = centred @ (np.kron(own, eye) - known) @ centred
    return full.reshape(len(own), found.classes, len(own), found.classes)


def mean(found: LogitPosterior, member: int, vectors: list[torch.Tensor]) -> np.ndarray:  # (A, K)
    """Mean logits of a member: those of its mode carried on by the kernel."""
    process = found._process(member, 1.0)
    rows = found.kernel.vectors(found.contrasts.inducing)
    cross, among = (product_covariance(process, left, rows).numpy() for left in (vectors, rows))
    logits = found.logits[member] - found.logits[member].mean(axis=1, keepdims=True)
    return cross @ np.linalg.lstsq(among, logits, rcond=1e-12)[0]


def readouts(found: LogitPosterior) -> np.ndarray:  # (D, K)
    return np.array([[-1.0, 1.0]]) if found.classes == 2 else np.eye(found.classes)


def coalitions(found: LogitPosterior, row: np.ndarray) -> tuple[list[tuple[bool, ...]], list[torch.Tensor]]:
    at = found.kernel.vectors(found.contrasts.inducing)
    subsets = list(product([False, True], repeat=3))
    vectors = [
        torch.stack([at[n][row] if kept[n] else average for kept in subsets])
        for n, average in enumerate(found.kernel.means)
    ]
    return subsets, vectors


def test_deviations_of_shapley_values_are_those_of_the_dense_posterior(posterior):
    nodes, weights = legendre(2, torch.zeros((), dtype=torch.float64))
    at, means = posterior.kernel.vectors(posterior.contrasts.inducing), list(posterior.kernel.means)
    rows, centre = [0, 3, 7], torch.full((3, 3), 0.3, dtype=torch.float64)
    way = [x[rows] - average for x, average in zip(at, means, strict=True)]
    for d, output in enumerate(posterior.outputs):
        found = path_deviations(output, means, way, nodes, weights.expand(3, -1), centre=centre)
        for b, row in enumerate(rows):
            subsets, vectors = coalitions(posterior, row)
            for n in range(3):
                shapley = np.array(
                    [
                        (1 if kept[n] else -1)
                        * factorial(sum(kept) - kept[n])
                        * factorial(2 - sum(kept) + kept[n])
                        / factorial(3)
                        for kept in subsets
                    ]
                )
                weight = np.multiply.outer(shapley, readouts(posterior)[d])
                within, middles = [], []
                for member in range(len(posterior.weights)):
                    within.append(np.einsum("ak,akbl,bl", weight, dense(posterior, member, vectors), weight))
                    middles.append(np.sum(weight * mean(posterior, member, vectors)))
                # What is trained has the rest of the average, and no variance of its own.
                share, shares = posterior.share, posterior.weights
                middle = shares @ middles
                spread = shares @ (np.array(middles) - middle) ** 2
                if share < 1:
                    spread = share * (shares @ (np.array(middles) - 0.3) ** 2)
                    spread += (1 - share) * ((0.3 - share * middle) / (1 - share) - 0.3) ** 2
                assert float(found[b, n]) == pytest.approx(np.sqrt(shares @ within + spread), rel=1e-6)


def test_all_contrasts_together_have_the_covariance_of_any_combination_of_classes(posterior):
    """A function of levels alone at the end of a path is the function at the row."""
    at, means = posterior.kernel.vectors(posterior.contrasts.inducing), list(posterior.kernel.means)
    way = [x[:2] - average for x, average in zip(at, means, strict=True)]
    combined = np.random.default_rng(0).standard_normal(len(readouts(posterior)))
    turned = torch.from_numpy(combined) @ posterior.readouts
    levels = turned.expand(2, 1, 3, 1, -1)
    found = path_deviations(posterior.contrasts, means, way, torch.ones(1).double(), 0 * levels[:, :, 0], levels)[
        ..., 0
    ]
    weight = combined @ readouts(posterior)
    vectors = [x[:2] for x in at]
    within = [
        np.einsum("k,akal,l->a", weight, dense(posterior, member, vectors), weight)
        for member in range(len(posterior.weights))
    ]
    middles = np.stack([mean(posterior, member, vectors) @ weight for member in range(len(posterior.weights))])
    spread = posterior.weights @ (middles - posterior.weights @ middles) ** 2
    np.testing.assert_allclose(found[:, 0], np.sqrt(posterior.weights @ within + spread), rtol=1e-6)


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_draws_have_the_deviations_of_the_posterior_about_the_average(posterior, share):
    at, means = posterior.kernel.vectors(posterior.contrasts.inducing), list(posterior.kernel.means)
    term = [at[0][:4] - means[0], *(average.expand(4, -1) for average in means[1:])]
    output, centre = replace(posterior.outputs[0], share=share), torch.full((4, 1), 0.2, dtype=torch.float64)
    draws = posterior_draws(output, prior_covariances(output, term), centre, 20_000, 0)
    expected = output.product_deviations(term, centre[:, 0])
    torch.testing.assert_close(draws.std(0)[:, 0], expected, rtol=0.03, atol=0.0)
    torch.testing.assert_close(draws.mean(0), centre, rtol=0.0, atol=float(4 * expected.max() / 20_000**0.5))


def test_logits_that_are_kept_are_modes(posterior):
    """At a mode a contrast is the kernel times the residuals, and a constant."""
    x, labels = table(posterior.classes)
    labels = labels[[np.flatnonzero(x[:, 0] == row[0])[0] for row in posterior.numbers]]
    kernels = [member for member, one in enumerate(posterior.components) if one.terms]
    assert kernels
    for member in kernels:
        covariance = posterior._process(member, 1.0).covariance(posterior.contrasts.inducing).numpy() - CONSTANT
        logits, basis = posterior.logits[member], posterior.basis.numpy()
        away = (np.eye(posterior.classes)[labels] - softmax(logits, axis=1)) * posterior.row_weights[:, None]
        rest = logits @ basis.T - covariance @ away @ basis.T
        assert rest.std(axis=0).max() < 0.05 * logits.std()  # searches end at a millionth of the loss


def test_inducing_rows_and_a_sample_count_as_all_rows(monkeypatch):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((400, 2))
    model = ResTTClassifier(effort="quick", random_state=0).fit(x, x[:, 0] + rng.standard_normal(400) > 0)
    whole = model.posterior_
    assert kept_rows(400, 2, 2, len(whole.weights)) == len(whole.numbers) == 400
    nodes, weights = legendre(1, torch.zeros((), dtype=torch.float64))
    way = [
        x[:5] - mean for x, mean in zip(whole.kernel.vectors(whole.contrasts.inducing), whole.kernel.means, strict=True)
    ]
    given = list(whole.kernel.means), way, nodes, weights.expand(5, -1)
    expected = path_deviations(whole.outputs[0], *given)
    monkeypatch.setattr("restt.prior.laplace.MOST_INDUCING", 100)
    induced = replace(whole)
    assert len(induced.numbers) == 100
    assert len(induced.contrasts.roots[0]) == 100
    torch.testing.assert_close(path_deviations(induced.outputs[0], *given), expected, rtol=0.1, atol=0.0)
    monkeypatch.setattr("restt.prior.laplace.MOST_UNKNOWNS", 200)
    members = [
        Mode(whole._process(member, 1.0), share, factor, whole.logits[member])
        for member, (share, factor) in enumerate(zip(whole.weights, whole.factors, strict=True))
    ]
    half = LogitPosterior.of(members, whole.table, whole.row_weights)
    assert half.logits.shape[1] == 200
    assert half.row_weights.sum() == pytest.approx(400)
    torch.testing.assert_close(path_deviations(half.outputs[0], *given), expected, rtol=0.2, atol=0.0)


def test_a_saved_posterior_is_read_or_refused(posterior):
    config, tensors = posterior.to_config(), posterior.tensors()
    again = LogitPosterior.from_config(config, tensors)
    torch.testing.assert_close(again.contrasts.roots, posterior.contrasts.roots, rtol=0.0, atol=0.0)
    for name, value, message in (
        ("logits", tensors["logits"] * float("nan"), "logits must be finite"),
        ("logits", tensors["logits"][:, :1].repeat(1, 5000, 1), "none of a posterior"),
        ("logits", tensors["logits"][:0], "0 members, 24 rows"),
        ("logits", tensors["logits"][:, :0], "members, 0 rows and"),
        ("logits", tensors["logits"][..., :1], "24 rows and 1 classes are none"),
        ("weights", 2 * tensors["weights"], "weights of sum 2"),
        ("factors", -tensors["factors"], "factors must not be below 0"),
        ("table", tensors["table"][1:], "table must have shape"),
        ("thetas", tensors["thetas"][:, 1:], "hyper-parameters"),
        ("mean.0", tensors["mean.0"][1:], "column 0 has states"),
    ):
        with pytest.raises(ValueError, match=message):
            LogitPosterior.from_config(config, {**tensors, name: value})
    with pytest.raises(ValueError, match="members of share 2"):
        LogitPosterior.from_config({**config, "share": 2.0}, tensors)


def test_rows_and_members_of_a_saved_posterior_may_have_no_weight(posterior):
    config, tensors = posterior.to_config(), posterior.tensors()
    for name in ("row_weights", "factors"):
        values = tensors[name] * (torch.arange(len(tensors[name])) > 0)
        np.testing.assert_array_equal(
            getattr(LogitPosterior.from_config(config, {**tensors, name: values}), name), values
        )


def test_a_single_mode_has_a_posterior_and_its_share_of_the_average(posterior):
    mode = Mode(posterior._process(0, 1.0), 0.25, posterior.factors[0], posterior.logits[0])
    found = LogitPosterior.of([mode], posterior.table, posterior.row_weights)
    assert (found.weights.tolist(), found.share) == ([1.0], 0.25)
    vectors = [x[:2] for x in found.kernel.vectors(found.contrasts.inducing)]
    slopes = torch.tensor([1.0, -2.0])[: len(found.basis)].double()
    weight = (slopes @ found.basis).numpy()
    expected = np.sqrt(np.einsum("k,akal,l->a", weight, dense(found, 0, vectors), weight))
    deviations = found.contrasts.product_deviations(vectors, slopes=slopes.expand(2, -1))
    np.testing.assert_allclose(deviations, expected, rtol=1e-6)


def test_members_differ_from_parts_without_a_posterior_too():
    posterior = Conditioned(None, np.array([0.25, 0.75]), None, (), (), (), share=0.8)
    means = [torch.tensor([[1.0], [2.0]]).double(), torch.tensor([[3.0], [2.0]]).double()]
    # The other fifth is at 0 and 7: shares 0.2, 0.6 and 0.2 about 2 and 3.
    found = posterior.disagreement(means, torch.tensor([2.0, 3.0]).double())
    assert found.tolist() == pytest.approx([0.2 * 1 + 0.6 * 1 + 0.2 * 4, 0.8 * 1 + 0.2 * 16])
