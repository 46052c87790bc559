from __future__ import annotations

import pytest
import torch

from restt import ResTT
from restt.data.images import preprocess_images
from restt.features import Trigonometric
from restt_paper.images.recipes import DIGIT_VIEWS, MOVES, RECIPES
from restt_paper.images.sites import (
    ReorderedSites,
    block_means,
    image_orders,
    image_views,
    patch_sites,
    pixel_sites,
    product_sites,
)


@pytest.fixture
def bytes_():
    return torch.randint(0, 256, (5, 28, 28), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)


def test_pixels_are_the_papers_sites(bytes_):
    whole = preprocess_images(bytes_, "full")
    assert torch.allclose(block_means(whole), preprocess_images(bytes_, "paper"), atol=1e-6)
    assert torch.allclose(pixel_sites(whole), Trigonometric()(preprocess_images(bytes_, "paper")), atol=1e-6)


def test_patches_are_the_papers_vector_map(bytes_):
    expected = Trigonometric()(preprocess_images(bytes_, "patches"))
    assert torch.allclose(patch_sites(preprocess_images(bytes_, "full")), expected, atol=1e-6)


def test_products_are_all_of_a_patch():
    image = torch.tensor([[0.1, 0.2, 0.3, 0.4]])
    (site,) = product_sites(image, 1.3)[0]
    turned = [torch.stack([(1.3 * p).cos(), (1.3 * p).sin()]) for p in image[0]]
    expected = torch.einsum("a,b,c,d->abcd", *turned).flatten()
    assert torch.allclose(site, expected)
    assert float(site.norm()) == pytest.approx(1.0)


def test_views_are_the_image_and_its_mirror_moved_with_zeros_coming_in():
    image = torch.arange(1.0, 10.0).view(1, 9)
    views = [view.view(3, 3).tolist() for view in image_views(image, MOVES)]
    assert len(views) == 2 * len(MOVES)
    assert views[0] == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    assert views[1] == [[0, 1, 2], [0, 4, 5], [0, 7, 8]]
    assert views[4] == [[4, 5, 6], [7, 8, 9], [0, 0, 0]]
    assert views[5] == [[3, 2, 1], [6, 5, 4], [9, 8, 7]]


def test_moves_by_whole_pixels_are_the_same_in_both_kinds_of_views():
    image = torch.rand(2, 49, generator=torch.Generator().manual_seed(0))
    expected = list(image_views(image, MOVES))[: len(MOVES)]
    for seen, moved in zip(image_views(image, [(*move, 0.0, 1.0) for move in MOVES]), expected, strict=True):
        assert torch.allclose(seen, moved, atol=1e-5)


def test_views_are_turned_and_scaled():
    image = torch.rand(2, 36, generator=torch.Generator().manual_seed(0))
    square = image.view(2, 6, 6)
    turned, larger, both = (
        view.view(2, 6, 6) for view in image_views(image, [(0, 0, 90, 1), (0, 0, 0, 3), (1, 0, 90, 1)])
    )
    assert torch.allclose(turned, square.rot90(dims=(1, 2)), atol=1e-5)
    assert torch.allclose(larger[:, 1::3, 1::3], square[:, 2:4, 2:4], atol=1e-5)
    # What is moved down is turned to the right then.
    assert torch.allclose(both[..., 1:], turned[..., :-1], atol=1e-5)


def test_digits_are_seen_within_what_their_recipe_trains_on():
    augment = RECIPES["detailed"].augment
    for down, right, degrees, size in DIGIT_VIEWS:
        assert max(abs(down), abs(right)) <= augment["shift"]
        assert abs(degrees) <= augment["rotation"]
        assert abs(size - 1) <= augment["scale"]
    assert len(set(DIGIT_VIEWS)) == 9


def test_orders_go_by_the_numbers_of_the_runs():
    def order(**numbers):
        return ReorderedSites(ResTT(4, 2, bond_dim=3, outputs=2, runs=4), orders=8, **numbers).order

    assert torch.equal(order(run_ids=[0, 1, 0, 9]), order()[[0, 1, 0, 1]])


def test_a_smaller_angle_turns_less():
    assert torch.allclose(
        pixel_sites(torch.ones(1, 4), 0.5),
        torch.tensor([[[0.5]]]).cos().repeat(1, 1, 2).where(torch.tensor([True, False]), torch.tensor(0.5).sin()),
    )


def test_runs_axis_in_front_changes_nothing(bytes_):
    whole = preprocess_images(bytes_, "full")
    assert torch.equal(patch_sites(whole.expand(3, 5, 784))[2], patch_sites(whole))


def test_odd_images_are_refused():
    with pytest.raises(ValueError, match="x must hold images with an even side, got images of 3×3 pixels"):
        pixel_sites(torch.zeros(1, 9))


@pytest.mark.parametrize("look", [pixel_sites, lambda x: next(image_views(x, MOVES))], ids=["sites", "views"])
def test_images_that_are_not_square_are_refused(look):
    with pytest.raises(ValueError, match=r"pixels of an image in x must form a square.*got 8"):
        look(torch.zeros(1, 8))


def test_orders_are_eight_different_permutations_along_neighbours():
    orders = image_orders(36)
    assert len({tuple(walk.tolist()) for walk in orders}) == 8
    assert (orders.sort(1).values == torch.arange(36)).all()
    for walk in orders[2:4]:  # a snake only ever goes to a neighbour
        rows, columns = walk // 6, walk % 6
        assert (rows.diff().abs() + columns.diff().abs() == 1).all()
    with pytest.raises(ValueError, match=r"sites must form a square.*got 8"):
        image_orders(8)


def test_each_run_orders_its_own_way():
    inner = ResTT(9, 2, bond_dim=4, outputs=3, runs=10)
    model = ReorderedSites(inner, orders=8)
    x = torch.rand(7, 9, 2, generator=torch.Generator().manual_seed(1))
    own = torch.rand(10, 7, 9, 2, generator=torch.Generator().manual_seed(2))
    shared, apart = model(x), model(own)
    for run, walk in enumerate([*image_orders(9), *image_orders(9)[:2]]):
        assert torch.allclose(shared[run], inner(x[:, walk])[run], atol=1e-6)
        assert torch.allclose(apart[run], inner(own[:, :, walk])[run], atol=1e-6)
