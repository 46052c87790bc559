"""Rows that come in blocks against the same rows in memory."""

import threading

import pytest
import torch

from restt._common.ranks import Ranks
from restt.train import TrainConfig, train
from restt.train.augment import SiteDropout
from restt.train.stream import StreamBatches, StreamData, prefetched
from tests.train.problems import assert_same_bits, classification, measured, regression, small_module


class Blocks:
    """Rows in blocks, in the order they lie."""

    def __init__(self, *tensors: torch.Tensor, block: int = 17) -> None:
        self.tensors, self.block = tensors, block
        self.rows = len(tensors[0])

    def blocks(self, epoch):
        yield from zip(*(tensor.split(self.block) for tensor in self.tensors), strict=True)

    def features(self, x):
        return x

    def to_config(self):
        return [self.rows, self.block, float(self.tensors[0].sum())]


def batches(source: Blocks, size: int, **options) -> StreamBatches:
    x, y = source.tensors[0][:1], source.tensors[1][:1, None]
    data = StreamData(x, y, None, None, (source.rows,), None, source=source, loss="mse")
    return StreamBatches(data, size, [0], [0], **options)


def of_rank(rank: int, size: int) -> Ranks:
    ranks = Ranks()
    ranks.rank, ranks.size = rank, size
    return ranks


@pytest.mark.parametrize(("block", "size"), [(17, 10), (5, 16), (60, 60), (20, 10), (7, 100)])
def test_batches_are_cut_out_of_blocks_without_a_gap(block, size):
    x, y = regression()
    found = list(batches(Blocks(x, y, block=block), size).epoch(1))
    assert torch.equal(torch.cat([batch.x[0] for batch in found]), x)
    assert torch.equal(torch.cat([batch.target[0, :, 0] for batch in found]), y)
    assert [batch.x.shape[1] for batch in found] == [min(size, 60 - start) for start in range(0, 60, size)]
    assert all(float(batch.share.sum()) == pytest.approx(1.0) for batch in found)


@pytest.mark.parametrize(("size", "batch"), [(2, 11), (3, 11), (3, 7), (5, 3), (30, 23)])
def test_parts_of_all_ranks_make_the_batch(size, batch):
    """Also with fewer rows in a batch than ranks."""
    x, y = regression(rows=23)
    parts = [list(batches(Blocks(x, y, block=4), batch, ranks=of_rank(rank, size)).epoch(1)) for rank in range(size)]
    for whole, *own in zip(batches(Blocks(x, y), batch).epoch(1), *parts, strict=True):
        assert torch.equal(torch.cat([part.x[:, part.share[0] > 0] for part in own], dim=1), whole.x)
        assert sum(float(part.share.sum()) for part in own) == pytest.approx(1.0)
        assert all(part.count == whole.count for part in own)


def test_dropout_is_that_of_the_row_whatever_rank_has_it():
    x, y = regression(rows=23)
    dropout = SiteDropout(small_module().topology, [0.5], torch.zeros(()))
    whole, first, second = (
        batches(Blocks(x, y), 7, dropout=dropout, ranks=of_rank(rank, size)).epoch(1)
        for rank, size in ((0, 1), (0, 2), (1, 2))
    )
    for batch, *own in zip(whole, first, second, strict=True):
        assert torch.equal(torch.cat([part.x for part in own], dim=1), batch.x)


@pytest.mark.parametrize("problem", [regression, classification])
def test_one_batch_of_all_rows_trains_as_in_memory(problem):
    x, y = problem()
    config = TrainConfig(epochs=4, batch_size=60, lr=0.05, dropout=0.3, seed=0)
    outputs = 1 if problem is regression else 3
    streamed, whole = small_module(runs=2, outputs=outputs), small_module(runs=2, outputs=outputs)
    found = list(train(streamed, Blocks(x, y), config=config, validation=(x, y), feature_map=torch.cos))
    expected = list(train(whole, x, y, config=config, validation=(x, y), feature_map=torch.cos))
    assert_same_bits(streamed, whole)
    assert [measured(record) for record in found] == [measured(record) for record in expected]


def test_weights_are_those_of_the_rows():
    x, y = regression()
    weight = (torch.arange(60) % 3 != 0).float()
    config = TrainConfig(epochs=3, batch_size=60, lr=0.05, seed=0)
    streamed, whole = small_module(), small_module()
    list(train(streamed, Blocks(x, y, weight / weight.mean()), config=config))
    list(train(whole, x, y, config=config, sample_weight=weight))
    for name, value in whole.state_dict().items():
        torch.testing.assert_close(streamed.state_dict()[name], value)


def test_a_stopped_training_goes_on_to_the_same_bits_and_another_stream_is_refused(tmp_path):
    x, y = regression()
    config = TrainConfig(epochs=6, batch_size=16, lr=0.02, seed=0)
    stopped, whole = small_module(), small_module()
    for record in train(stopped, Blocks(x, y), config=config, checkpoint_dir=tmp_path):
        if record.epoch == 2:
            break
    with pytest.raises(ValueError, match=r"x: .* in the checkpoint, .* now"):
        train(stopped, Blocks(x, y, block=18), config=config, checkpoint_dir=tmp_path)
    list(train(stopped, Blocks(x, y), config=config, checkpoint_dir=tmp_path))
    list(train(whole, Blocks(x, y), config=config))
    assert_same_bits(stopped, whole)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": torch.zeros(60)}, "y must be None where x is a stream"),
        ({"sample_weight": torch.ones(60)}, "sample_weight must be None"),
        ({"subset": [range(3)]}, "subset must be None"),
        ({"validation_subset": [range(3)]}, "validation_subset must be None"),
        ({"config": TrainConfig(batch_size=None)}, "batch_size must be a number"),
    ],
)
def test_what_a_stream_cannot_have_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        train(small_module(), Blocks(*regression()), **change)


def test_a_source_that_loses_rows_is_found_out():
    x, y = regression()
    source = Blocks(x, y)
    source.rows = 61
    with pytest.raises(ValueError, match="61 rows in every epoch, got 60 in epoch 1"):
        list(train(small_module(), source, config=TrainConfig(epochs=1, batch_size=10)))


def test_a_source_with_more_rows_than_it_says_is_found_out():
    source = Blocks(*regression())
    source.blocks = lambda epoch: iter([source.tensors, source.tensors])
    with pytest.raises(ValueError, match="60 rows in every epoch, got 120 in epoch 1"):
        list(train(small_module(), source, config=TrainConfig(epochs=1, batch_size=10)))


def test_prefetched_passes_items_and_errors_on_and_ends_its_thread():
    def failing():
        yield 1
        raise OSError("the disk is gone")

    assert list(prefetched(iter(range(5)))) == list(range(5))
    with pytest.raises(OSError, match="the disk is gone"):
        list(prefetched(failing()))
    left = prefetched(iter(range(1000)))
    assert next(left) == 0
    left.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("restt-prefetch")]
