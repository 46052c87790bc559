"""Pictures hold the numbers of what they show: places, sizes, colours and texts, of made-up explanations."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from restt.explain import plots

to_hex = pytest.importorskip("matplotlib.colors").to_hex


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    yield
    matplotlib.pyplot.close("all")


class Local:
    """Values (B, N) of rows that have a base of 1."""

    outputs, method, base = ("y",), "Shapley value", np.array([1.0])

    def __init__(self, values: Any, std: Any = None, data: Any = None) -> None:
        self.values = np.array(values, dtype=float)[..., None]
        self.std = None if std is None else np.array(std, dtype=float)[..., None]
        self.data = None if data is None else np.array(data, dtype=object)
        self.names = list("abcdefghijklmn"[: self.values.shape[1]])

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, row: int) -> Local:
        one = slice(row, row + 1)
        return Local(self.values[one, :, 0], None if self.std is None else self.std[one, :, 0])

    def measured(self, output: int) -> str:
        return "metres"


def labels(axes: Any, which: str = "y") -> list[str]:
    return [text.get_text() for text in getattr(axes, f"get_{which}ticklabels")()]


def colours(bars: Any) -> list[str]:
    return [to_hex(bar.get_facecolor()) for bar in bars]


def test_a_waterfall_falls_from_the_largest_bar_and_sums_up_the_rest() -> None:
    sizes = [1.0, -2, 3, -4, 5, -6, 7, -8, 9, -10, 11, -12, 13, -14]
    axes = plots.waterfall(Local([[0.0] * 14, sizes], std=[[0.0] * 14, [0.0] * 12 + [6.5, 6.9]]), row=1)
    drawn = sorted(axes.patches, key=lambda bar: bar.get_y())
    widths = [-14.0, 13, -12, 11, -10, 9, -8, 7, -6, 5, -4, 3, -1]
    assert [bar.get_width() for bar in drawn] == widths
    assert labels(axes) == [*"nmlkjihgfedc", "2 others"]
    starts = 1.0 + np.cumsum([0.0, *widths[:0:-1]])
    assert [bar.get_x() for bar in drawn] == pytest.approx(starts[::-1].tolist())
    grey = [plots.DOWN, plots.NOTHING, *[plots.DOWN, plots.UP] * 5, plots.DOWN]  # 13 is two deviations, 14 is more
    assert colours(drawn) == grey
    assert [text.get_text() for text in axes.texts][:2] == ["-1", "+3"]
    assert [text.xy for text in axes.texts][:2] == [(1.0, 12), (3.0, 11)]
    assert [line.get_xdata()[0] for line in axes.lines] == [1.0, 1.0 + sum(sizes)]
    assert axes.get_xlabel() == "metres: from 1 to -6"
    with pytest.raises(ValueError, match="row must be at most 1, got 2"):
        plots.waterfall(Local([[0.0]] * 2), row=2)
    few = plots.waterfall(Local([sizes[:12]], data=[[0.5, "red", *[None] * 10]]))
    assert labels(few)[-2:] == ["b = red", "a = 0.5"]
    assert few.yaxis_inverted()


def test_a_beeswarm_ranks_columns_by_size_and_dots_by_entry() -> None:
    values = [[0.1, 4.0], [0.3, -1.0], [0.2, 2.0], [0.4, -3.0]]
    data = [[5.0, "v"], [1.0, "u"], [np.nan, "v"], [5.0, None]]
    axes = plots.beeswarm(Local(values, std=[[0.0, 2.0], [0.0, 0.0], [0.0, 0.0], [0.2, 0.0]], data=data))
    assert labels(axes) == ["b", "a"]
    offsets = 0.3 * np.sin(2.4 * np.arange(4))
    greys, dots, greys_of_a, dots_of_a = axes.collections
    np.testing.assert_allclose(greys.get_offsets(), [[4.0, offsets[3]]])
    np.testing.assert_allclose(dots.get_offsets(), [[-1, offsets[1]], [2, offsets[2]], [-3, offsets[0]]])
    assert dots.get_array().tolist()[:2] == [0.0, 1.0]
    np.testing.assert_allclose(greys_of_a.get_offsets(), [[0.4, 1 + offsets[3]]])  # equal to two deviations
    np.testing.assert_allclose(dots_of_a.get_offsets()[:, 1], 1 + offsets[[0, 2, 1]])
    np.testing.assert_array_equal(np.ma.filled(dots_of_a.get_array(), np.nan), [1.0, 0.0, np.nan])
    assert axes.get_xlabel() == "Shapley value for metres"
    assert axes.lines[0].get_xdata()[0] == 0
    plain = plots.beeswarm(Local(np.ones((3, 14))))
    assert len(labels(plain)) == 12
    assert plain.collections[1].get_array().tolist() == [0.5] * 3


def test_dependence_has_entries_across_and_values_upwards() -> None:
    local = Local(
        [[0.5, 1.0], [2.0, 2.0], [3.0, 3.0]], std=[[0.5, 0.5]] * 3, data=[[4.0, "v"], [6.0, "u"], [None, "v"]]
    )
    axes = plots.dependence(local)
    bars, dots = axes.collections
    assert dots.get_offsets().tolist() == [[4.0, 0.5], [6.0, 2.0]]
    assert [to_hex(colour) for colour in dots.get_facecolors()] == [plots.NOTHING, plots.DOWN]
    assert [segment[:, 1].tolist() for segment in bars.get_segments()] == [[0.0, 1.0], [1.5, 2.5]]
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.lines[-1].get_ydata()[0]) == ("a", "Shapley value for metres", 0)
    levels = plots.dependence(local, column="b")
    assert labels(levels, "x") == ["u", "v"]
    assert levels.collections[1].get_offsets()[:, 0].tolist() == [1, 0, 1]


def explanation(**changes: Any) -> SimpleNamespace:
    total, first = torch.tensor([[0.2], [0.7], [0.4]]), torch.tensor([[0.1], [0.5], [0.3]])
    sobol = SimpleNamespace(first=first, total=total, by_order=torch.tensor([[0.0], [0.9], [0.1]]))
    made = {"names": list("abc"), "outputs": ("y",), "sobol": sobol, "shares": None, "measured": lambda o: "metres"}
    return SimpleNamespace(**{**made, **changes})


def shares(**changes: Any) -> SimpleNamespace:
    std, probability = np.array([[0.01], [0.02], [0.03]]), np.array([[0.95], [0.94], [1.0]])
    errors = SimpleNamespace(std=std, probability=probability)
    made = {"alone": np.array([[0.1], [0.2], [0.3]]), "total": np.array([[0.3], [0.5], [0.4]]), "rows": 40}
    made |= {
        "column_errors": errors,
        "settings": SimpleNamespace(sure=0.95),
        "of_orders": np.array([[0.0], [0.8], [0.2]]),
    }
    return SimpleNamespace(**{**made, **changes})


def test_columns_are_ranked_by_their_share_in_all() -> None:
    axes = plots.columns(explanation())
    assert labels(axes) == ["b", "c", "a"]
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([0.7, 0.4, 0.2, 0.5, 0.3, 0.1])
    assert axes.get_xlabel() == "share of the variance of metres\n(independent columns)"
    axes = plots.columns(explanation(shares=shares()))
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([0.5, 0.4, 0.3, 0.2, 0.3, 0.1])
    assert colours(axes.patches) == ["#e8e8e8", *[plots.LIGHT] * 2, plots.NOTHING, *[plots.DOWN] * 2]
    whiskers = [segment[:, 0].tolist() for segment in axes.collections[0].get_segments()]
    np.testing.assert_allclose(whiskers, [[0.48, 0.52], [0.37, 0.43], [0.29, 0.31]])
    assert axes.get_xlabel().endswith("(40 rows)")


def test_orders_are_shares_or_sizes_from_the_first_on() -> None:
    for given, heights in ((None, [0.9, 0.1]), (shares(), [0.8, 0.2])):
        axes = plots.orders(explanation(shares=given))
        assert [bar.get_height() for bar in axes.patches] == pytest.approx(heights)
        assert [bar.get_x() + bar.get_width() / 2 for bar in axes.patches] == [1, 2]
        assert axes.get_xticks().tolist() == [1, 2]
    local = SimpleNamespace(predictions=0, outputs=("y",), orders=np.array([[[9.0], [1.0]], [[9.0], [-3.0]]]))
    local.measured = lambda output: "metres"
    axes = plots.orders(local)
    assert [bar.get_height() for bar in axes.patches] == [2.0]
    assert axes.get_ylabel() == "mean size of the contribution to metres"


def test_a_network_has_interactions_as_strong_as_their_share() -> None:
    sizes = {(1,): 0.5, (0, 1): 0.2, (0, 1, 2): 0.1, (0, 2): 0.0}
    terms = [SimpleNamespace(columns=columns, share=torch.tensor([share])) for columns, share in sizes.items()]
    errors = SimpleNamespace(probability=np.array([[1.0], [0.5], [0.95], [1.0]]))
    whole = explanation(interactions=SimpleNamespace(terms=terms))
    axes = plots.network(whole)
    places = {text.get_text(): np.array(text.get_position()) / 1.22 for text in axes.texts}
    turn = 2 * np.pi / 3
    np.testing.assert_allclose(
        [places[name] for name in "abc"], [[np.cos(n * turn), np.sin(n * turn)] for n in range(3)]
    )
    assert axes.get_xlim() == axes.get_ylim() == (-1.4, 1.4)  # names stand at 1.22
    np.testing.assert_allclose(axes.collections[0].get_sizes(), [150.0, 510.0, 330.0])
    pair, star = axes.lines[:2], axes.lines[2:]
    assert [line.get_linewidth() for line in axes.lines] == pytest.approx([4.0] * 2 + [2.0] * 3)
    assert [line.get_alpha() for line in axes.lines] == pytest.approx([0.9] * 2 + [0.6] * 3)
    assert [{line.get_color() for line in lines} for lines in (pair, star)] == [{plots.DOWN}, {plots.UP}]
    np.testing.assert_allclose(pair[1].get_xydata(), [places["b"], (places["a"] + places["b"]) / 2])
    np.testing.assert_allclose([line.get_xydata()[1] for line in star], 0, atol=1e-12)
    whole.shares = shares(term_errors=errors, terms=list(sizes))
    axes = plots.network(whole)
    assert [line.get_color() for line in axes.lines] == [plots.NOTHING] * 2 + [plots.UP] * 3
    alone = plots.network(explanation(interactions=SimpleNamespace(terms=[])))
    assert (len(alone.lines), len(alone.texts)) == (0, 3)


def curve(*grids: np.ndarray, values: Any, spread: Any) -> SimpleNamespace:
    parts = {
        "values": torch.tensor(values)[..., None],
        "spread": torch.tensor(spread)[..., None],
        "spread_over": "rows",
    }
    made = {"grids": grids, "names": ["a", "b"], "outputs": ("y",), **parts}
    return SimpleNamespace(**made, measured=lambda output: "metres")


def test_an_effect_is_a_line_in_its_band_or_bars() -> None:
    grid = np.array([1.0, 2.0, np.nan])
    axes = plots.effect_curve(curve(grid, values=[1.0, 3.0, -2.0], spread=[0.5, 0.25, 9.0]))
    line, missing, zero = axes.lines
    assert line.get_xydata().tolist() == [[1, 1], [2, 3]]
    assert [missing.get_ydata()[0], zero.get_ydata()[0]] == [-2, 0]
    band = axes.collections[0].get_paths()[0].vertices
    assert {(x, y) for x, y in band.tolist()} == {(1, 0.5), (1, 1.5), (2, 2.75), (2, 3.25)}
    texts = [text.get_text() for text in axes.get_legend().get_texts()]
    assert texts == ["± one standard deviation of the rows", "missing"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("a", "effect on metres")
    plain = plots.effect_curve(curve(grid[:2], values=[1.0, 3.0], spread=[0.0, 0.0]))
    assert (len(plain.collections), plain.get_legend()) == (0, None)
    levels = np.array(["u", np.nan], dtype=object)
    bars = plots.effect_curve(curve(levels, values=[1.0, -2.0], spread=[0.5, 0.25]))
    assert [bar.get_height() for bar in bars.patches] == [1.0, -2.0]
    assert labels(bars, "x") == ["u", "missing"]
    assert [part[:, 1].tolist() for part in bars.collections[0].get_segments()] == [[0.5, 1.5], [-2.25, -1.75]]


def test_a_surface_is_grey_where_it_may_be_nothing_and_leaves_out_missing_numbers() -> None:
    grids = np.array([1.0, 2.0, np.nan]), np.array(["u", None], dtype=object)
    values = [[1.0, -4.0], [2.0, 3.0], [9.0, 9.0]]
    axes = plots.effect_surface(curve(*grids, values=values, spread=[[0.5, 1.9], [0.9, 0.0], [1.0, 1.0]]))
    image = axes.collections[0]
    shown = np.ma.filled(image.get_array().astype(float), np.nan).reshape(2, 2)
    np.testing.assert_array_equal(shown, [[np.nan, 2.0], [-4.0, 3.0]])  # 1 is two deviations
    assert image.get_clim() == (-9.0, 9.0)
    assert labels(axes) == ["u", "missing"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("a", "b")
    nothing = plots.effect_surface(curve(*grids, values=np.zeros((3, 2)), spread=np.zeros((3, 2))))
    assert nothing.collections[0].get_clim() == (-1.0, 1.0)
