"""Shapley values and pair indices against the definitions over all coalitions."""

from __future__ import annotations

import pytest
import torch

import restt
from restt.explain import interaction_index, order_spectrum, shapley_values
from restt.explain.sweeps import MEMORY
from tests.explain import brute

CASES = {
    "residual": {"sites": 8},
    "twelve sites": {"sites": 12, "bond": 4, "outputs": 1},
    "ragged": {"sites": 6, "width": [2, 1, 3, 2, 1, 3]},
    "runs": {"sites": 6, "runs": 3},
    "one site": {"sites": 1},
    "two sites": {"sites": 2, "runs": 2},
    "plain": {"sites": 5, "topology": "plain"},
    "volterra": {"sites": 6, "topology": "volterra"},
    "linear": {"sites": 6, "topology": "linear"},
    "diagonal": {"sites": 5, "products": 6},
    "diagonal, ragged": {"sites": 5, "width": [2, 1, 3, 2, 1], "products": 4, "runs": 1},
    "diagonal, one site": {"sites": 1, "products": 3},
    **{f"random {seed}": {"sites": 7, "topology": brute.random_topology(7, seed)} for seed in range(12)},
}


def made(case: str) -> tuple[restt.ResTT, torch.Tensor, torch.Tensor]:
    module = brute.random_module(**CASES[case])
    return module, brute.random_rows(module, 3, seed=1), brute.random_rows(module, 9, seed=2)


@pytest.mark.parametrize("case", CASES)
def test_shapley_values_are_those_of_the_definition(case: str) -> None:
    module, x, background = made(case)
    expected = torch.stack([brute.shapley(brute.game(module, row, background.mean(0))) for row in x])
    found = shapley_values(module, x, background)
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("index", ["SII", "STII"])
@pytest.mark.parametrize("case", [case for case in CASES if case != "twelve sites"])
def test_pair_indices_are_those_of_the_definition(case: str, index: str) -> None:
    module, x, background = made(case)
    games = [brute.game(module, row, background.mean(0)) for row in x]
    expected = torch.stack([brute.pair_index(values, index) for values in games])
    diagonal = torch.arange(module.sites)
    if index == "SII":
        single = torch.stack([brute.shapley(values) for values in games])
    else:
        single = torch.stack([values[2**diagonal] - values[0] for values in games])
    expected[:, diagonal, diagonal] = single
    found = interaction_index(module, x, background, index=index)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def test_the_joint_mode_averages_the_games_against_each_row() -> None:
    module, x, background = made("ragged")
    x, background = x[:2], background[:4]
    expected = torch.stack(
        [torch.stack([brute.shapley(brute.game(module, row, other)) for other in background]).mean(0) for row in x]
    )
    found = shapley_values(module, x, background, background_mode="joint")
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    assert not torch.allclose(found, shapley_values(module, x, background), atol=1e-3)


@pytest.mark.parametrize("index", ["SII", "STII"])
@pytest.mark.parametrize("case", ["ragged", "runs", "one site", "two sites", "plain"])
def test_the_joint_mode_averages_the_pair_indices_of_each_row(case: str, index: str) -> None:
    module, x, background = made(case)
    x, background = x[:2], background[:3]
    found = interaction_index(module, x, background, index=index, background_mode="joint")
    single = interaction_index(module, x, background, order=1, background_mode="joint")
    diagonal = torch.arange(module.sites)
    for row, values, alone in zip(x, found, single, strict=True):
        games = [brute.game(module, row, other) for other in background]
        expected = torch.stack([brute.pair_index(game, index) for game in games]).mean(0)
        shapley = torch.stack([brute.shapley(game) for game in games]).mean(0)
        by_itself = torch.stack([game[2**diagonal] - game[0] for game in games]).mean(0)
        expected[diagonal, diagonal] = shapley if index == "SII" else by_itself
        torch.testing.assert_close(values, expected, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(alone, shapley, rtol=1e-10, atol=1e-10)
    if module.sites > 1:  # one site is at its mean either way
        assert not torch.allclose(found, interaction_index(module, x, background, index=index), atol=1e-3)


def test_at_100_sites_the_pairs_add_up_to_the_prediction() -> None:
    module = brute.random_module(sites=100, width=2, bond=3, outputs=1)
    x, background = brute.random_rows(module, 1, seed=6, scale=0.5), brute.random_rows(module, 20, seed=2, scale=0.5)
    pairs = interaction_index(module, x, background, index="STII")[0, ..., 0]
    gap = brute.predictions(module, x) - brute.predictions(module, background.mean(0, keepdim=True))
    assert gap.abs().max() > 0.1
    torch.testing.assert_close(torch.triu(pairs).sum(), gap[0, 0], rtol=1e-8, atol=1e-8)
    singles = interaction_index(module, x, background)[0].diagonal()[0]
    torch.testing.assert_close(singles, shapley_values(module, x, background)[0, :, 0], rtol=1e-8, atol=1e-8)


def test_at_196_sites_the_values_add_up_to_the_prediction() -> None:
    module = brute.random_module(sites=196, width=2, bond=10, outputs=3)
    x, background = brute.random_rows(module, 4, seed=1, scale=0.5), brute.random_rows(module, 20, seed=2, scale=0.5)
    values = shapley_values(module, x, background)
    gap = brute.predictions(module, x) - brute.predictions(module, background.mean(0, keepdim=True))
    assert gap.abs().max() > 0.1
    torch.testing.assert_close(values.sum(1), gap, rtol=1e-8, atol=1e-8)


def test_shapley_taylor_indices_add_up_to_the_prediction() -> None:
    module, x, background = made("residual")
    found = interaction_index(module, x, background, index="STII")
    gap = brute.predictions(module, x) - brute.predictions(module, background.mean(0, keepdim=True))
    torch.testing.assert_close(torch.triu(found.movedim(-1, 1)).sum((2, 3)), gap, rtol=1e-10, atol=1e-10)


def test_few_rows_at_once_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    module, x, background = made("runs")
    whole, pairs = shapley_values(module, x, background), interaction_index(module, x, background)
    orders = order_spectrum(module, x, background)
    monkeypatch.setattr(MEMORY, "cpu", 1)
    torch.testing.assert_close(order_spectrum(module, x, background), orders, rtol=1e-10, atol=1e-10)
    # Products of other shapes may add in another order; a row that is missing or in another's place shows anyway.
    torch.testing.assert_close(shapley_values(module, x, background), whole, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(interaction_index(module, x, background), pairs, rtol=1e-10, atol=1e-10)


def test_a_float32_module_is_explained_in_float64() -> None:
    _, x, background = made("residual")
    single = brute.random_module(**CASES["residual"]).float()
    found = shapley_values(single, x.float(), background.float())
    exact = shapley_values(single.double(), x.float(), background.float())
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, exact, rtol=0, atol=0)
    assert single.first.requires_grad


def test_shap_agrees_on_the_same_game(monkeypatch: pytest.MonkeyPatch) -> None:
    # Compiling shap's loops takes longer than 256 coalitions without.
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    shap = pytest.importorskip("shap", reason="shap is not installed: it is in the dev extra")
    module, x, background = made("residual")
    means = background.mean(0)

    def predict(coalitions: object) -> object:
        chosen = torch.as_tensor(coalitions).bool()[..., None]
        return brute.predictions(module, torch.where(chosen, x[0], means)).numpy()

    explainer = shap.ExactExplainer(predict, torch.zeros(1, 8).numpy())
    expected = torch.from_numpy(explainer(torch.ones(1, 8).numpy()).values[0])
    torch.testing.assert_close(shapley_values(module, x[:1], background)[0], expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("index", ["SII", "STII"])
def test_shapiq_agrees_on_the_same_game(index: str) -> None:
    shapiq = pytest.importorskip("shapiq", reason="shapiq is not installed: it is in the dev extra")
    module, x, background = made("residual")
    means = background.mean(0)

    def value(coalitions: object) -> object:
        chosen = torch.as_tensor(coalitions).bool()[..., None]
        return brute.predictions(module, torch.where(chosen, x[0], means))[:, 0].numpy()

    exact = shapiq.ExactComputer(n_players=8, game=value)(index=index, order=2)
    found = interaction_index(module, x[:1], background, index=index)[0, ..., 0]
    for i in range(8):
        assert found[i, i] == pytest.approx(exact[(i,)], abs=1e-8)
        for j in range(i + 1, 8):
            assert found[i, j] == pytest.approx(exact[(i, j)], abs=1e-8)


def test_wrong_use_is_refused() -> None:
    module, x, background = made("residual")
    with pytest.raises(ValueError, match="background must be given for a module"):
        shapley_values(module, x)
    with pytest.raises(ValueError, match=r"x must be site vectors of shape \(B, 8, 2\), got \(3, 7, 2\)"):
        shapley_values(module, x[:, 1:], background)
    with pytest.raises(ValueError, match=r"background must be site vectors of shape"):
        shapley_values(module, x, background[0, 0])
    with pytest.raises(ValueError, match="background must be finite"):
        shapley_values(module, x, background * torch.nan)
    with pytest.raises(ValueError, match="at least one row"):
        shapley_values(module, x[:0], background)
    with pytest.raises(ValueError, match="background_mode must be one of"):
        shapley_values(module, x, background, background_mode="conditional")
    with pytest.raises(ValueError, match="background_mode must be one of"):
        interaction_index(module, x, background, background_mode="conditional")
    with pytest.raises(ValueError, match='background must be given with background_mode="joint"'):
        interaction_index(module, x, background_mode="joint")
    with pytest.raises(ValueError, match="index must be one of"):
        interaction_index(module, x, background, index="BII")
    with pytest.raises(ValueError, match="order must be at most 2, got 3"):
        interaction_index(module, x, background, order=3)
    with pytest.raises(TypeError, match=r"model must be a restt\.ResTT or a fitted estimator of restt, got dict"):
        shapley_values({}, x, background)
