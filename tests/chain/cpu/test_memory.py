from concurrent.futures import ThreadPoolExecutor

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from restt.chain.cpu.memory import _Scratch, scratch, uninitialised

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


def test_every_thread_has_scratch_of_its_own():
    mine = scratch(10, DOUBLE)
    assert scratch(1000, SINGLE).data_ptr() == mine.data_ptr()
    with ThreadPoolExecutor(1) as pool:
        theirs = pool.submit(scratch, 10, DOUBLE).result()
    assert theirs.data_ptr() != mine.data_ptr()
    assert mine.nbytes >= 1000 * 4


def test_large_scratch_is_not_kept():
    large = scratch(COUNT, DOUBLE)
    assert large.shape == (COUNT,)
    assert scratch(COUNT, DOUBLE).data_ptr() != large.data_ptr()


def test_scratch_is_real_even_if_a_trace_is_the_first_to_use_it():
    with FakeTensorMode():
        assert _Scratch().block.data_ptr() != 0
    with torch.device("meta"):
        assert _Scratch().block.data_ptr() != 0
