import math

import pytest
import torch

from restt._common.seeds import stream_keys
from restt.features import Trigonometric
from restt.train import Augmentation, TrainConfig, train
from restt.train.augment import ELASTIC_POINTS, smooth_fields
from tests.train.problems import small_module

KEYS = stream_keys([0, 0], [0, 1], "augment", 0)


def spot(row, column, size=9):
    image = torch.zeros(1, 1, size, size)
    image[0, 0, row, column] = 1.0
    return image.flatten(2)


def centre(images, size=9):
    """Centre of mass (row, column) of each image, from the middle."""
    weight = images.view(*images.shape[:-1], size, size)
    place = torch.arange(size) - (size - 1) / 2
    total = weight.sum((-1, -2))
    return torch.stack([(weight.sum(-1) * place).sum(-1), (weight.sum(-2) * place).sum(-1)], -1) / total[..., None]


def test_nothing_asked_nothing_changed():
    images = torch.rand(1, 5, 81, generator=torch.Generator().manual_seed(0))
    changed = Augmentation()(images, KEYS)
    assert torch.allclose(changed, images.expand(2, -1, -1), atol=1e-5)


def test_shift_moves_within_its_range_in_both_directions():
    moved = centre(Augmentation(shift=2.0)(spot(4, 4).expand(1, 400, 81), KEYS))
    assert moved.abs().max() <= 2.0 + 1e-4
    assert moved.abs().amax(1).min() > 1.8
    assert moved.mean(1).abs().max() < 0.2
    assert torch.corrcoef(moved[0].T)[0, 1].abs() < 0.2  # rows and columns move on their own


def test_rotation_keeps_the_distance_from_the_middle():
    turned = centre(Augmentation(rotation=30.0)(spot(4, 7).expand(1, 300, 81), KEYS))
    distance, angle = turned.norm(dim=-1), torch.rad2deg(torch.atan2(turned[..., 0], turned[..., 1]))
    assert distance.mean() == pytest.approx(3.0, abs=0.15)
    assert 25 < angle.abs().max() <= 32


def test_scale_groups_around_the_middle():
    scaled = centre(Augmentation(scale=0.2)(spot(4, 7).expand(1, 300, 81), KEYS))
    assert scaled[..., 0].abs().max() < 1e-3
    assert scaled[..., 1].min() == pytest.approx(2.4, abs=0.25)
    assert scaled[..., 1].max() == pytest.approx(3.6, abs=0.25)


def test_shear_moves_rows_sideways_in_proportion_to_their_height():
    images = (spot(2, 4) + spot(4, 4)).expand(1, 300, 81)
    slanted = Augmentation(shear=30.0)(images, KEYS).view(2, 300, 9, 9)
    upper, middle = slanted.clone(), slanted.clone()
    upper[..., 3:, :], middle[..., [0, 1, 2, 3, 5, 6, 7, 8], :] = 0, 0
    row, column = centre(upper.flatten(2)).unbind(-1)
    assert torch.allclose(row, torch.tensor(-2.0), atol=1e-3)
    most = 2 * math.tan(math.radians(30))
    assert column.abs().max() <= most + 1e-3
    assert column.abs().amax(1).min() > 0.9 * most
    assert column.mean(1).abs().max() < 0.15
    assert centre(middle.flatten(2)).abs().max() < 1e-3
    with pytest.raises(ValueError, match=r"augment\.shear must be below 90, got 90\.0"):
        Augmentation(shear=90.0)


def test_shear_leaves_the_other_numbers_what_they_were():
    images = torch.rand(1, 6, 81, generator=torch.Generator().manual_seed(3))
    hardly = Augmentation(shear=1e-6, shift=1.0)(images[:, :1], KEYS)
    assert torch.allclose(hardly, Augmentation(shift=1.0)(images[:, :1], KEYS), atol=1e-4)


def test_elastic_moves_different_parts_differently():
    images = (spot(2, 2) + spot(6, 6)).expand(1, 100, 81)
    bent = Augmentation(elastic=1.5)(images, KEYS)
    square = bent.view(2, 100, 9, 9)
    first, second = square.clone(), square.clone()
    first[..., 4:, :], second[..., :5, :] = 0, 0
    shift = centre(first.flatten(2)) - centre(spot(2, 2))
    other = centre(second.flatten(2)) - centre(spot(6, 6))
    inside = shift.isfinite().all(-1) & other.isfinite().all(-1)
    assert inside.float().mean() > 0.9
    assert (shift - other)[inside].norm(dim=-1).mean() > 0.3
    assert not torch.equal(bent[0], bent[1])


def test_elastic_fields_are_torchs_bicubic_interpolation():
    points = torch.rand(3, 2 * ELASTIC_POINTS**2, generator=torch.Generator().manual_seed(0))
    coarse = points.view(3, 2, ELASTIC_POINTS, ELASTIC_POINTS)
    expected = torch.nn.functional.interpolate(coarse, size=(7, 10), mode="bicubic", align_corners=True)
    torch.testing.assert_close(smooth_fields(points, 7, 10), expected)


def test_flip_mirrors_about_half_of_the_images_and_leaves_the_others():
    image = torch.rand(1, 1, 81, generator=torch.Generator().manual_seed(2))
    seen = Augmentation(flip=True)(image.expand(1, 200, 81), KEYS).view(2, 200, 9, 9)
    given = image.view(9, 9)
    kept = torch.isclose(seen, given, atol=1e-5).all(-1).all(-1)
    mirrored = torch.isclose(seen, given.flip(-1), atol=1e-5).all(-1).all(-1)
    assert (kept ^ mirrored).all()
    assert 0.4 < mirrored.float().mean() < 0.6
    with pytest.raises(TypeError, match=r"augment\.flip must be True or False, got 0\.5"):
        Augmentation(flip=0.5)


def test_a_split_batch_is_changed_in_the_same_way():
    images = torch.rand(2, 6, 81, generator=torch.Generator().manual_seed(1))
    augment = Augmentation(shift=1.0, elastic=1.0)
    whole = augment(images, KEYS)
    parts = torch.cat([augment(images[:, :2], KEYS), augment(images[:, 2:], KEYS, offset=2)], dim=1)
    assert torch.allclose(whole, parts, atol=1e-6)


def test_images_of_the_wrong_size_are_named():
    with pytest.raises(ValueError, match=r"pixels of each image must form a square .* got 80"):
        Augmentation(shift=1.0)(torch.zeros(1, 1, 80), KEYS)
    with pytest.raises(ValueError, match=r"flat images, x of shape \(M, H·W\), got \(5, 9, 2\)"):
        Augmentation(shift=1.0).check((5, 9, 2))
    with pytest.raises(ValueError, match=r"augment\.scale must be below 1"):
        Augmentation(scale=1.0)


def test_training_sees_changed_images_and_validation_the_given_ones():
    generator = torch.Generator().manual_seed(0)
    x, y = torch.rand(30, 9, generator=generator), torch.arange(30) % 2
    found = {}
    for shift in (0.0, 1.0):
        module = small_module(sites=9, outputs=2)
        config = TrainConfig(batch_size=8, lr=1e-12, augment=Augmentation(shift=shift), seed=0)
        records = train(module, x, y, config=config, validation=(x, y), feature_map=Trigonometric())
        found[shift] = next(records)
    assert found[1.0].train_loss != pytest.approx(found[0.0].train_loss, rel=1e-3)
    assert found[1.0].validation["loss"] == pytest.approx(found[0.0].validation["loss"], rel=1e-5)
