"""Launches without Triton's preparations, with stand-ins for Triton and its kernels."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
import torch

from restt.chain.cuda.calls import Beside, KernelCall


class Compiled:
    def __init__(self, log, accepts=True):
        self.log, self.accepts = log, accepts

    def __getitem__(self, grid):
        def launch(*arguments):
            if not self.accepts:
                raise TypeError("function takes exactly 9 arguments")
            self.log.append(("direct", grid, arguments))

        return launch


class Kernel:
    arg_names = ("p_a", "p_b", "count", "WIDTH", "SAVE")
    params = ()  # those with a default value

    def __init__(self, interpreted=False, accepts=True):
        self.log, self.interpreted, self.accepts = [], interpreted, accepts

    def __getitem__(self, grid):
        def launch(*arguments, **constants):
            self.log.append(("prepared", grid, arguments, constants))
            return None if self.interpreted else Compiled(self.log, self.accepts)

        return launch

    def kinds(self):
        return [entry[0] for entry in self.log]


CONSTANTS = {"SAVE": True, "WIDTH": 2, "num_warps": 4}


def test_only_the_first_launch_is_prepared():
    kernel, a, b = Kernel(), torch.zeros(8), torch.zeros(8)
    call = KernelCall(kernel, (3, 2), (7,), CONSTANTS)
    call(a, b)
    call(b, a)
    assert kernel.log[0] == ("prepared", (3, 2, 1), (a, b, 7), CONSTANTS)
    kind, grid, arguments = kernel.log[1]
    assert (kind, grid) == ("direct", (3, 2, 1))
    assert arguments[0] is b
    assert arguments[2:] == (7, 2, True)  # numbers, then constants in the kernel's own order, without options


def test_each_alignment_has_a_kernel_of_its_own():
    kernel, stored = Kernel(), torch.zeros(16)
    aligned, shifted = stored[:8], stored[1:9]
    call = KernelCall(kernel, (1,), (7,), CONSTANTS)
    call(aligned, aligned)
    call(aligned, shifted)
    call(shifted, aligned)
    call(aligned, shifted)
    call(aligned, aligned)
    assert kernel.kinds() == ["prepared", "prepared", "prepared", "direct", "direct"]


def test_pointers_in_tuples_have_alignments_too():
    kernel, stored = Kernel(), torch.zeros(16)
    aligned, shifted = stored[:8], stored[1:9]
    call = KernelCall(kernel, (1,), (7,), CONSTANTS)
    for pointers in ((aligned, aligned), (shifted, aligned), (aligned, shifted), (shifted, aligned)):
        call(pointers, aligned)
    assert kernel.kinds() == ["prepared", "prepared", "prepared", "direct"]


def test_interpreted_kernels_are_always_prepared():
    kernel, a = Kernel(interpreted=True), torch.zeros(8)
    call = KernelCall(kernel, (1,), (7,), CONSTANTS)
    call(a, a)
    call(a, a)
    assert kernel.kinds() == ["prepared", "prepared"]


def test_another_triton_is_launched_its_own_way():
    kernel, a = Kernel(accepts=False), torch.zeros(8)
    call = KernelCall(kernel, (1,), (7,), CONSTANTS)
    for _ in range(3):
        call(a, a)
    assert kernel.kinds() == ["prepared", "prepared", "prepared"]


class Stream:
    def __init__(self, name, log):
        self.name, self.log = name, log

    def wait_stream(self, other):
        self.log.append(f"{self.name} waits for {other.name}")


@pytest.fixture
def streams(monkeypatch):
    """What happens on which stream, on a GPU that is not there."""
    log = []

    @contextmanager
    def entered(stream):
        log.append(f"on {stream.name}")
        yield
        log.append("on current")

    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Stream("current", log))
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: Stream("beside", log))
    monkeypatch.setattr(torch.cuda, "stream", entered)
    return log


def test_a_recorded_graph_forks_and_joins(streams, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    beside = Beside(torch.device("cuda"))
    beside.launch(lambda: streams.append("head"))
    streams.append("sweep")
    beside.launch(lambda: streams.append("weights"))
    streams.append("next sweep")
    beside.join()
    assert streams == [
        *("beside waits for current", "on beside", "head", "on current", "sweep"),
        *("beside waits for current", "on beside", "weights", "on current", "next sweep"),
        "current waits for beside",
    ]


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_elsewhere_there_is_one_stream(streams, monkeypatch, device):
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    beside = Beside(torch.device(device))
    assert beside.launch(lambda: streams.append("launch") or 3) == 3
    beside.join()
    assert streams == ["launch"]
