"""The CUDA graphs: their bookkeeping with a recording that simply runs again, and on a GPU the real thing."""

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from threading import local

import pytest
import torch

import restt
from restt.train import Penalty, TrainConfig, cuda_graph, train, training
from restt.train.step import TrainStep


class RecordedStep(cuda_graph.GraphedStep):
    captures = 0

    @staticmethod
    def capture(work, device):
        RecordedStep.captures += 1
        return work


@pytest.fixture
def always_captured(monkeypatch):
    monkeypatch.setattr(training, "TrainStep", RecordedStep)
    RecordedStep.captures = 0


def weights_after(config, runs=3, device="cpu", **options):
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(70, 5, 2, generator=generator)
    y = torch.randint(0, 3, (70,), generator=generator)
    module = restt.ResTT(5, 2, 4, 3, runs=runs, device=device)
    module.reset_parameters(seed=1)
    records = list(train(module, x, y, config=config, **options))
    return records, {name: value.detach().clone() for name, value in module.named_parameters()}


CONFIGS = {
    "cosine": {"schedule": "cosine", "clip_norm": 0.5, "penalty": Penalty(chain=1e-2)},
    "own rates": {"lr": (1e-3, 1e-2, 1e-2), "ema": 0.9},
    "towards the start": {"epochs": (2, 4, 3), "penalty": Penalty(chain=1.0, head=(0.1, 1.0, 10.0), towards="start")},
    "own lengths": {"epochs": (2, 4, 3), "weight_decay": 1e-3, "optimizer": "adamw"},
}


@pytest.mark.parametrize("name", CONFIGS)
def test_replayed_steps_are_the_ordinary_ones(name, monkeypatch):
    options = {"epochs": 4, "batch_size": 16, "seed": 3, **CONFIGS[name]}
    expected_records, expected = weights_after(TrainConfig(**options))
    monkeypatch.setattr(training, "TrainStep", RecordedStep)
    RecordedStep.captures = 0
    records, found = weights_after(TrainConfig(**options))
    assert RecordedStep.captures >= 1
    for role, value in expected.items():
        torch.testing.assert_close(found[role], value, rtol=1e-6, atol=1e-7)
    for got, want in zip(records, expected_records, strict=True):
        assert got.train_loss == pytest.approx(want.train_loss, rel=1e-6, nan_ok=True)


@pytest.mark.parametrize("name", CONFIGS)
def test_epochs_of_one_step_are_replayed_and_their_rows_copied_once(name, monkeypatch):
    options = {"epochs": 5, "batch_size": None, "seed": 3, **CONFIGS[name]}
    subsets = [torch.arange(70), torch.arange(40), torch.arange(20, 65)]
    expected_records, expected = weights_after(TrainConfig(**options), subset=subsets)
    monkeypatch.setattr(training, "TrainStep", RecordedStep)
    copies = []
    monkeypatch.setattr(cuda_graph._Recorded, "_copy", lambda self, batch: copies.append(batch))
    RecordedStep.captures = 0
    records, found = weights_after(TrainConfig(**options), subset=subsets)
    # One recording for as long as the same runs are in training, from their second epoch on.
    epochs = Counter(record.runs for record in records)
    assert RecordedStep.captures == sum(count > 1 for count in epochs.values())
    assert copies == []
    for role, value in expected.items():
        torch.testing.assert_close(found[role], value, rtol=1e-6, atol=1e-7)
    for got, want in zip(records, expected_records, strict=True):
        assert got.train_loss == pytest.approx(want.train_loss, rel=1e-6, nan_ok=True)
        assert got.gradient_norm == pytest.approx(want.gradient_norm, rel=1e-6, nan_ok=True)


@pytest.mark.usefixtures("always_captured")
def test_uneven_runs_and_weights_are_replayed_too():
    subsets = [torch.arange(70), torch.arange(40), torch.arange(20, 65)]
    config = TrainConfig(epochs=2, batch_size=8, seed=0)
    _, found = weights_after(config, subset=subsets, sample_weight=torch.linspace(0.1, 1, 70))
    assert RecordedStep.captures >= 1
    assert all(value.isfinite().all() for value in found.values())


def test_a_module_that_cannot_be_captured_trains_anyway(monkeypatch):
    class Refusing(cuda_graph.GraphedStep):
        @staticmethod
        def capture(work, device):
            raise RuntimeError("operation not permitted when stream is capturing")

    config = TrainConfig(epochs=3, batch_size=16, seed=3)
    _, expected = weights_after(config)
    monkeypatch.setattr(training, "TrainStep", Refusing)
    _, found = weights_after(config)
    assert all(torch.equal(found[role], value) for role, value in expected.items())


class Capturing:
    """What of torch.cuda a capture calls, noted: on which devices, and how often the cache was emptied."""

    def __init__(self, monkeypatch, free=2.0, reserved=1.0, allocated=1.0):
        self.under_way, self.devices, self.current, self.emptied = [], [], local(), 0
        noted = self

        class Graph:
            def capture_begin(self, capture_error_mode):
                assert capture_error_mode == "thread_local"
                noted.under_way.append(noted.current.stream)
                time.sleep(0.02)  # for another to begin meanwhile, if it can
                assert noted.under_way == [noted.current.stream]

            def capture_end(self):
                noted.under_way.remove(noted.current.stream)

            def replay(self):
                pass

        @contextmanager
        def streaming(stream):
            noted.current.stream = stream
            yield

        def emptying():
            noted.emptied += 1

        fakes = {
            "CUDAGraph": Graph,
            "Stream": lambda device: (device, object()),
            "device": lambda device: nullcontext(noted.devices.append(device)),
            "stream": streaming,
            "synchronize": lambda device: None,
            "mem_get_info": lambda device: (free, 4.0),
            "memory_reserved": lambda device: reserved,
            "memory_allocated": lambda device: allocated,
            "empty_cache": emptying,
        }
        for name, fake in fakes.items():
            monkeypatch.setattr(torch.cuda, name, fake)


def test_captures_of_several_devices_come_one_after_the_other_each_on_a_stream_of_its_own(monkeypatch):
    """torch's own capture stream is on one device, and two captures at once are refused."""
    capturing = Capturing(monkeypatch)
    given = [torch.device("cuda", place) for place in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda device: cuda_graph.capture_graph(lambda: None, device), given))
    assert sorted(capturing.devices, key=str) == given


@pytest.mark.parametrize(
    ("sizes", "emptied"), [({}, 0), ({"free": 0.5}, 1), ({"free": 2.0**40, "reserved": 2.0**31}, 1)]
)
def test_what_was_freed_is_given_back_before_a_capture_where_it_is_much_or_memory_is_short(monkeypatch, sizes, emptied):
    capturing = Capturing(monkeypatch, **sizes)
    cuda_graph.capture_graph(lambda: None, torch.device("cuda", 0))
    assert capturing.emptied == emptied


def test_a_capture_that_fails_has_ended(monkeypatch):
    capturing = Capturing(monkeypatch)
    with pytest.raises(ZeroDivisionError):
        cuda_graph.capture_graph(lambda: 1 / 0, torch.device("cuda", 0))
    assert not capturing.under_way


@pytest.mark.skipif(not torch.cuda.is_available(), reason="a CUDA graph needs a CUDA device")
@pytest.mark.parametrize("batch_size", [16, None])
@pytest.mark.parametrize("name", CONFIGS)
def test_on_a_gpu_the_graph_trains_as_the_plain_step_does(name, batch_size, monkeypatch):
    options = {"epochs": 4, "batch_size": batch_size, "seed": 3, **CONFIGS[name]}
    captures = []

    def noting(work, device):
        captures.append(work)
        return cuda_graph.capture_graph(work, device)

    monkeypatch.setattr(cuda_graph.GraphedStep, "capture", staticmethod(noting))
    records, found = weights_after(TrainConfig(**options), device="cuda")
    assert captures
    monkeypatch.setattr(training, "GraphedStep", TrainStep)
    expected_records, expected = weights_after(TrainConfig(**options), device="cuda")
    for role, value in expected.items():
        torch.testing.assert_close(found[role], value, rtol=1e-4, atol=1e-5)
    for got, want in zip(records, expected_records, strict=True):
        assert got.train_loss == pytest.approx(want.train_loss, rel=1e-4, nan_ok=True)


def test_another_precision_is_another_graph(monkeypatch):
    """What a graph multiplies with is fixed when it is recorded."""
    monkeypatch.setattr(training, "TrainStep", RecordedStep)
    RecordedStep.captures = 0
    generator = torch.Generator().manual_seed(0)
    x, y = torch.rand(70, 5, 2, generator=generator), torch.rand(70, generator=generator)
    stream = train(restt.ResTT(5, 2, 4, 1), x, y, config=TrainConfig(epochs=3, batch_size=16, seed=3))
    for asked in ("float32", "float32", "bf16"):
        with restt.chain.precision(asked):
            next(stream)
    assert RecordedStep.captures == 2
