import pytest
import torch

from restt._common.seeds import PURPOSES, bits, stream_keys, uniform


def splitmix64(key: int, count: int) -> list[int]:
    """The published generator in Python's own integers."""
    mask, found = 2**64 - 1, []
    for n in range(1, count + 1):
        z = (key + n * 0x9E3779B97F4A7C15) & mask
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        found.append(z ^ (z >> 31))
    return found


@pytest.mark.parametrize("key", [0, 1, 2**62 + 12345])
def test_bits_are_splitmix64(key):
    found = bits(torch.tensor([key]), (50,))[0].tolist()
    assert [value % 2**64 for value in found] == splitmix64(key, 50)


def test_known_value_of_the_published_generator():
    assert bits(torch.tensor([0]), (1,)).item() % 2**64 == 0xE220A8397B1DCDAF


def test_uniform_covers_the_unit_interval_evenly():
    values = uniform(stream_keys([5], [0], "dropout", 1), (100_000,))[0]
    assert values.min() >= 0
    assert values.max() < 1
    counts = torch.histc(values, bins=20, min=0, max=1)
    expected = 5000.0
    assert ((counts - expected).square() / expected).sum() < 43.8  # chi-square, 19 degrees of freedom, 0.1 % level
    assert torch.corrcoef(torch.stack([values[:-1], values[1:]]))[0, 1].abs() < 0.02


def test_streams_differ_by_seed_run_purpose_and_epoch():
    keys = {
        int(stream_keys([seed], [run], purpose, epoch))
        for seed in (0, 1)
        for run in (0, 1)
        for purpose in PURPOSES
        for epoch in (0, 1, 2)
    }
    assert len(keys) == 2 * 2 * len(PURPOSES) * 3


def test_a_run_has_the_same_numbers_alone_or_among_many():
    together = uniform(stream_keys([9] * 4, range(4), "augment", 2), (3, 7))
    alone = uniform(stream_keys([9], [2], "augment", 2), (3, 7))
    assert torch.equal(together[2:3], alone)


def test_a_stream_continues_where_a_batch_is_split():
    keys = stream_keys([1, 2], [0, 0], "dropout", 0)
    whole = uniform(keys, (6, 5))
    parts = torch.cat([uniform(keys, (2, 5)), uniform(keys, (4, 5), offset=10)], dim=1)
    assert torch.equal(whole, parts)
