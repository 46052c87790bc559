"""Explanations of tree ensembles against games played by the model's own predictions."""

import numpy as np
import pytest
import torch
from sklearn.ensemble import (
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
)
from sklearn.linear_model import LinearRegression
from sklearn.tree import DecisionTreeRegressor

from restt import explain
from tests.explain import brute
from tests.explain.trees.rows import joint_game, marginal_game, table

TIGHT = {"rtol": 0, "atol": 1e-10}


@pytest.fixture(scope="module")
def boosted():
    """A model that takes missing values, its trees, rows and a small background."""
    x, y = table(150)
    model = HistGradientBoostingRegressor(max_iter=12, max_leaf_nodes=9, min_samples_leaf=3).fit(x, y)
    return model, explain.from_trees(model), x, x[:4]


@pytest.fixture(scope="module")
def forest():
    """Probabilities of three classes."""
    x, y = table(120, 4)
    classes = np.digitize(y, [-1, 1])
    model = RandomForestClassifier(5, max_depth=4, random_state=0).fit(x, classes)
    return model, explain.from_trees(model), x, x[:4]


def test_shapley_values_of_every_subset(boosted, forest):
    for (_, trees, x, background), own in ((boosted, boosted[0].predict), (forest, forest[0].predict_proba)):
        marginal = explain.shapley_values(trees, x[10:13], background)
        joint = explain.shapley_values(trees, x[10:13], background, background_mode="joint")
        for row in range(3):
            game = marginal_game(own, x[10 + row], background)
            torch.testing.assert_close(marginal[row], brute.shapley(game), **TIGHT)
            game = joint_game(own, x[10 + row], background)
            torch.testing.assert_close(joint[row], brute.shapley(game), **TIGHT)


def test_twelve_columns_and_deep_boxes():
    x, _ = table(400, 12, missing=False)
    y = x[:, 0] * x[:, 1] + np.sin(3 * x[:, 2]) * x[:, 3] * (x[:, 0] > 0) + x[:, 6:].sum(1) / 4
    model = HistGradientBoostingRegressor(max_iter=20, min_samples_leaf=2).fit(x, y)
    coalitions = brute.coalitions(12).numpy()
    games = [model.predict(np.where(coalitions, x[0], row)) for row in x[10:12]]
    wanted = brute.shapley(torch.from_numpy(np.mean(games, 0))[:, None])
    found = explain.shapley_values(explain.from_trees(model), x[:1], x[10:12], background_mode="joint")[0]
    torch.testing.assert_close(found, wanted, **TIGHT)


@pytest.mark.parametrize("index", ["SII", "STII"])
def test_pair_indices_of_every_subset(boosted, index):
    model, trees, x, background = boosted
    for mode, play in (("marginal", marginal_game), ("joint", joint_game)):
        found = explain.interaction_index(trees, x[20:21], background, index=index, background_mode=mode)[0]
        game = play(model.predict, x[20], background)
        off = ~torch.eye(len(found), dtype=torch.bool)
        torch.testing.assert_close(found[off], brute.pair_index(game, index)[off], **TIGHT)
        alone = brute.shapley(game) if index == "SII" else brute.moebius(game)[2 ** torch.arange(len(found))]
        torch.testing.assert_close(found[~off], alone, **TIGHT)


def test_orders_and_single_terms(boosted):
    model, trees, x, background = boosted
    terms = brute.moebius(marginal_game(model.predict, x[30], background))
    sizes = brute.coalitions(5).sum(1)
    orders = torch.stack([terms[sizes == order].sum(0) for order in range(6)])
    torch.testing.assert_close(explain.order_spectrum(trees, x[30:31], background)[0], orders, **TIGHT)
    for number in (0, 1, 5, 13, 31):
        sites = [site for site in range(5) if number >> site & 1]
        found = explain.interaction(trees, x[30:31], sites, background)[0]
        torch.testing.assert_close(found, terms[number], **TIGHT)


def test_variances_and_interactions(boosted):
    model, trees, _, background = boosted
    every = np.array(np.meshgrid(*background.T, indexing="ij")).reshape(5, -1).T
    values = torch.from_numpy(model.predict(every)).reshape(4, 4, 4, 4, 4)
    variance = torch.stack([_part(values, chosen).square().mean() for chosen in brute.coalitions(5).tolist()])
    variance[0] = 0.0
    bits, whole = brute.coalitions(5), variance.sum()
    found = explain.sobol_indices(trees, background)
    torch.testing.assert_close(found.variance[0], whole, **TIGHT)
    torch.testing.assert_close(found.total[:, 0], torch.stack([variance[bits[:, n]].sum() for n in range(5)]) / whole)
    by_order = torch.stack([variance[bits.sum(1) == order].sum() for order in range(6)]) / whole
    torch.testing.assert_close(found.by_order[:, 0], by_order, **TIGHT)
    torch.testing.assert_close(found.first[:, 0], variance[2 ** torch.arange(5)] / whole, **TIGHT)
    top = explain.top_interactions(trees, background, k=8)
    assert top.complete
    best = variance.sort(descending=True).values[:8]
    torch.testing.assert_close(torch.stack([term.variance[0] for term in top.terms]), best, **TIGHT)
    for term in top.terms:
        torch.testing.assert_close(term.variance[0], variance[sum(2**column for column in term.columns)], **TIGHT)


def test_single_columns_and_pairs_add_up_to_their_orders(boosted, forest):
    # On many rows every box takes part, and orders come from another sweep than single terms.
    for _, trees, x, _ in (boosted, forest):
        found = explain.sobol_indices(trees, x)
        torch.testing.assert_close(found.first.sum(0), found.by_order[1], **TIGHT)
        pairs = (found.pairs.sum((0, 1)) - found.first.sum(0)) / 2
        torch.testing.assert_close(pairs, found.by_order[2], **TIGHT)
        torch.testing.assert_close(found.by_order.sum(0), torch.ones_like(found.variance), **TIGHT)


def _part(values: torch.Tensor, chosen: list[bool]) -> torch.Tensor:
    """The ANOVA term of the chosen axes: centred along them, averaged along all others."""
    for axis, inside in enumerate(chosen):
        mean = values.mean(axis, keepdim=True)
        values = values - mean if inside else mean
    return values


def test_variances_without_a_compiler_are_the_same(forest, monkeypatch):
    x, y = table(150)
    model = HistGradientBoostingRegressor(max_iter=10, min_samples_leaf=3, categorical_features=[1])
    categories = explain.from_trees(model.fit(x, y + 3 * np.isin(x[:, 1], [1, 3])))
    for trees, background in ((forest[1], forest[3]), (categories, x)):
        found, pairs = explain.sobol_indices(trees, background), _containing(trees, background)
        with monkeypatch.context() as patch:
            patch.setattr("restt.explain.trees.boxes.sweep", lambda *_: None)
            plain, slow = explain.sobol_indices(trees, background), _containing(trees, background)
        for name in ("variance", "total", "by_order"):
            torch.testing.assert_close(getattr(found, name), getattr(plain, name), **TIGHT)
        off = ~torch.eye(len(slow), dtype=torch.bool)
        torch.testing.assert_close(pairs[off], slow[off], **TIGHT)


def _containing(trees: explain.Trees, background: np.ndarray) -> torch.Tensor:
    return trees.train(trees.means(background)).moments(None).containing()


def test_effect_is_the_term_on_the_columns_scale(boosted):
    model, trees, x, background = boosted
    curve = explain.effect(trees, 0, background, grid=x[:6, 0])
    wanted = [brute.moebius(marginal_game(model.predict, row, background))[1] for row in x[:6]]
    torch.testing.assert_close(curve.values, torch.stack(wanted), **TIGHT)
    points = x[:3, 0], x[3:7, 2]
    surface = explain.effect(trees, [0, 2], background, grid=points)
    row = x[0].copy()
    for place in np.ndindex(3, 4):
        row[[0, 2]] = points[0][place[0]], points[1][place[1]]
        wanted = brute.moebius(marginal_game(model.predict, row, background))[5]
        torch.testing.assert_close(surface.values[place], wanted, **TIGHT)


def test_the_grid_of_a_column_has_every_bin(boosted):
    model, trees, x, _ = boosted
    curve = explain.effect(trees, 1, x)
    steps = np.unique(model.predict(np.where(np.arange(5) == 1, curve.grids[0][:, None], x[0])))
    values = np.where(np.arange(5) == 1, np.linspace(-3, 8, 2001)[:, None], x[0])
    assert set(np.unique(model.predict(values))) <= set(steps)


def test_a_train_with_diagonal_cores_is_the_same(boosted):
    _, trees, x, background = boosted
    module = trees.to_module()
    vectors = trees.vectors(x[:20])
    widths = torch.tensor(module.feature_dims)
    assert bool((vectors.sum(2) == 1).all())
    assert widths.max() == vectors.shape[2]
    np.testing.assert_allclose(module(vectors)[:, 0], trees.predict(x[:20])[:, 0], atol=1e-12)
    values = explain.shapley_values(module, vectors, trees.vectors(background))
    torch.testing.assert_close(explain.shapley_values(trees, x[:20], background), values, **TIGHT)


def test_result_objects(boosted):
    _, trees, x, background = boosted
    found = explain.explain_local(trees, x[:3], background)
    np.testing.assert_allclose(found.base + found.values.sum(1), trees.predict(x[:3]), atol=1e-12)
    assert found.data.shape == (3, 5)
    whole = explain.explain_global(trees, background, k=5)
    assert len(whole.interactions) == 5
    assert "HistGradientBoostingRegressor" in repr(trees)


def test_tables_say_what_is_explained(boosted, forest):
    _, trees, x, background = forest
    assert "probability of 2" in repr(explain.explain_local(trees, x[:1], background))
    assert explain.variance_shares(trees, x).scale == "probability"
    assert "probability" not in repr(explain.explain_local(boosted[1], boosted[2][:1], boosted[3]))
    rows = np.nan_to_num(x)
    margin = explain.from_trees(GradientBoostingClassifier(n_estimators=3).fit(rows, x[:, 2] > 0))
    assert "raw score of True" in repr(explain.explain_global(margin, rows))


def test_columns_that_no_split_reads_have_no_part():
    x, _ = table(100, missing=False)
    trees = explain.from_trees(GradientBoostingRegressor(n_estimators=5, max_features=5).fit(x, x[:, 2] > 0))
    values = explain.shapley_values(trees, x[:4], x)
    assert values.shape == (4, 5, 1)
    assert float(values[:, [0, 1, 3, 4]].abs().max()) < 1e-15
    constant = explain.from_trees(DecisionTreeRegressor().fit(x, np.full(100, 3.0)))
    np.testing.assert_array_equal(constant.predict(x[:2]), 3.0)
    assert float(explain.shapley_values(constant, x[:2], x).abs().max()) == 0.0
    module = constant.to_module()
    assert module.bond_dim == 1
    assert module(constant.vectors(x[:2])).tolist() == [[3.0]] * 2


def test_wrong_use_is_named(boosted):
    _, trees, x, background = boosted
    with pytest.raises(ValueError, match="background must be given"):
        explain.shapley_values(trees, x[:2])
    with pytest.raises(ValueError, match="background must be given"):
        explain.sobol_indices(trees)
    with pytest.raises(ValueError, match="5 features"):
        explain.shapley_values(trees, x[:2, :3], background)
    with pytest.raises(ValueError, match="a minimum of 1"):
        explain.shapley_values(trees, x[:0], background)
    with pytest.raises(TypeError, match="to_module"):
        explain.polynomial(trees)
    with pytest.raises(TypeError, match="to_module"):
        explain.prune(trees, 0.1)
    with pytest.raises(TypeError, match=r"tree ensemble .* got LinearRegression of sklearn$"):
        explain.from_trees(LinearRegression())
