import pytest
import torch

import restt
from restt.train import TrainConfig, train


def coarse(images: torch.Tensor) -> torch.Tensor:
    """14×14 images as 7×7 ones: a quarter of the sites, for a test of seconds."""
    return torch.nn.functional.avg_pool2d(images.view(-1, 1, 14, 14), 2).flatten(1)


def test_a_slice_of_mnist_is_learned():
    try:
        data = restt.data.load("mnist", download=False)
    except FileNotFoundError as error:
        pytest.skip(f"needs MNIST: {error}")
    x, y = coarse(data.x_train[:2000]), data.y_train[:2000]
    held_out = coarse(data.x_test[:1000]), data.y_test[:1000]
    module = restt.ResTT(sites=49, feature_dim=2, bond_dim=8, outputs=10, init="paper")
    module.reset_parameters(seed=0)
    config = TrainConfig(epochs=10, batch_size=50, lr=1e-2, schedule="warmup-cosine", seed=0)
    records = train(module, x, y, config=config, validation=held_out, feature_map=restt.features.Trigonometric())
    accuracy = [record.validation["accuracy"][0] for record in records]
    assert accuracy[-1] > 0.75
    assert accuracy[-1] > accuracy[0]
