import torch

from restt.chain.cpu.contraction import uninitialised

COUNT = 2_000_000
SINGLE, DOUBLE = torch.ones(1), torch.ones(1, dtype=torch.float64)


def test_memory_is_used_again_once_it_is_free():
    first = uninitialised(COUNT, SINGLE)
    address = first.data_ptr()
    other = uninitialised(COUNT, SINGLE)
    assert other.data_ptr() != address
    view = first[:10]
    del first, other
    assert uninitialised(COUNT, SINGLE).data_ptr() != address, "a view still uses it"
    del view
    assert uninitialised(COUNT, SINGLE).data_ptr() == address


def test_a_much_larger_block_is_not_handed_out():
    large = uninitialised(4 * COUNT, SINGLE)
    address = large.data_ptr()
    del large
    assert uninitialised(COUNT, SINGLE).data_ptr() != address


def test_types_and_alignment():
    for like in (SINGLE, DOUBLE):
        made = uninitialised(COUNT, like)
        assert made.dtype == like.dtype
        assert made.shape == (COUNT,)
        assert made.data_ptr() % 64 == 0
