import threading

import pytest

from restt.chain.precision import Setting


def fail_at(setting: Setting[int], depth: int) -> None:
    with setting.set_to(depth):
        assert setting.get() == setting.latest == depth
        raise KeyError


def test_blocks_nest_and_end_with_errors():
    setting = Setting("depth", 0)
    with setting.set_to(1):
        with pytest.raises(KeyError):
            fail_at(setting, 2)
        assert setting.get() == setting.latest == 1
    assert setting.get() == setting.latest == 0


def test_other_threads_do_not_see_it():
    setting, seen = Setting("depth", 0), []
    with setting.set_to(1):
        thread = threading.Thread(target=lambda: seen.append(setting.get()))
        thread.start()
        thread.join()
    assert seen == [0]
