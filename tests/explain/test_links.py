"""Links from the latent scale to y: derivatives against differences, and the words for either scale."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from restt.explain.links import Link, Scaled, SoftmaxLink, WarpLink, completed, link_of, measured


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
def test_a_warps_derivatives_are_by_the_latent_value_whatever_its_scale(size: float) -> None:
    # y is z⁴/4 of the standardised latent value z.
    model = SimpleNamespace(std=2 * size, width=0.5, prediction_slope=lambda z: z**3)
    parts = {"scale": np.array([size, 0.0]), "mean": np.array([5.0, 7.0]), "decode": lambda z: z**4 / 4}
    link = WarpLink("y", "log y", SimpleNamespace(model=model, **parts))
    z = np.array([0.5, 2.0])
    latent = np.stack([5.0 + size * z, [7.0, 7.0]], axis=1)
    np.testing.assert_allclose(link(latent)[:, 0], z**4 / 4)
    slopes, bends = link.slopes(latent), link.bends(latent)
    assert (slopes.shape, bends.shape) == ((2, 2, 2), (2, 2, 2, 2))
    np.testing.assert_allclose(slopes[:, 0, 0], z**3 / size)
    np.testing.assert_allclose(bends[:, 0, 0, 0], 3 * z**2 / size**2, rtol=1e-6)
    slopes[:, 0, 0] = bends[:, 0, 0, 0] = 0.0
    assert not slopes.any()  # a constant output does not move
    assert not bends.any()
    assert link.outputs(("log y", "log y1", "z")) == ("y", "y1", "z")


@pytest.mark.parametrize("classes", [1, 3])
def test_derivatives_of_probabilities_are_those_of_differences(classes: int) -> None:
    link, step = SoftmaxLink("probability", "logit"), 1e-4
    latent = np.random.default_rng(0).normal(size=(2, classes))
    moves = step * np.eye(classes)
    slopes = [(link(latent + move) - link(latent - move)) / (2 * step) for move in moves]
    np.testing.assert_allclose(link.slopes(latent), np.stack(slopes, -1), atol=1e-7)
    bends = [(link.slopes(latent + move) - link.slopes(latent - move)) / (2 * step) for move in moves]
    np.testing.assert_allclose(link.bends(latent), np.stack(bends, -1), atol=1e-7)


def test_the_identity_has_slope_one_and_no_bend() -> None:
    latent = np.arange(6.0).reshape(3, 2)
    np.testing.assert_array_equal(Link().slopes(latent), np.stack([np.eye(2)] * 3))
    assert Link().bends(latent).shape == (3, 2, 2, 2)
    assert not Link().bends(latent).any()
    assert Link()(latent) is latent
    assert (Link().identical, SoftmaxLink().identical) == (True, False)


def test_what_is_missing_from_a_total_is_shared_by_size() -> None:
    values = np.array([[[3.0, 0.0], [-1.0, 0.0]]])
    assert completed(values, np.array([[2.4, 5.0]])).tolist() == [
        [[pytest.approx(3.3), 0.0], [pytest.approx(-0.9), 0.0]]
    ]


@pytest.mark.parametrize(
    ("link", "on_y", "on_latent"),
    [
        (None, "out", "out"),
        (Link(), "out", "out"),
        (Link("raw score", "raw score"), "raw score of out", "raw score of out"),
        (SoftmaxLink("probability", "log-odds"), "probability of out", "log-odds of out"),
        (WarpLink("y", "log y"), "out", "out (latent scale)"),
    ],
)
def test_scales_have_names(link: Link | None, on_y: str, on_latent: str) -> None:
    assert (measured(link, "y", "out"), measured(link, "latent", "out")) == (on_y, on_latent)


def test_links_are_those_of_the_target() -> None:
    def linked(**target: Any) -> Any:
        return link_of(SimpleNamespace(target_=SimpleNamespace(**target)))

    assert (linked(classes=[0, 1]).latent, linked(classes=[0, 1, 2]).latent) == ("log-odds", "logit")
    assert link_of(SimpleNamespace(scale="raw score")).unit == "raw score"
    assert link_of(None).identical
    assert linked(label="log y", model=None) is None  # as 0.8 saved it


def test_a_result_leads_to_the_other_scale() -> None:
    class Result(Scaled):
        def __init__(self, scale: str, latent: Any = None, link: Any = None) -> None:
            self.scale, self.latent, self.link, self.outputs = scale, latent, link or Link(), ("out",)

        _y = property(lambda self: Result("y", self))  # type: ignore[assignment]

    latent = Result("latent")
    assert (latent.on().scale, latent.on("latent"), latent.on("y").on("latent")) == ("y", latent, latent)
    assert latent.measured(0) == "out"
    latent.link = None
    assert latent.on() is latent
    with pytest.raises(ValueError, match=r"0\.9 or later"):
        latent.on("y")
