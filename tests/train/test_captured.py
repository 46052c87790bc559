"""Steps of one's own loop: the bookkeeping with recordings that simply run again, and on a GPU the real thing."""

import pytest
import torch

import restt
from restt.train import CapturedStep
from restt.train.captured import WARM_UPS


class Recorded(CapturedStep):
    """Records on the CPU: a replay runs the work again and leaves the result where the first one was."""

    def __init__(self, step):
        super().__init__(step)
        self.aside = self.records = self.replays = 0

    def can_record(self, batch):
        return True

    def run_aside(self, work):
        self.aside += 1
        return work()

    def record(self, work):
        self.records += 1
        result = torch.zeros(())

        def replay():
            self.replays += 1
            result.copy_(work())

        return replay, result


def trained(kind, device="cpu", steps=8, sizes=(8,)):
    """Losses and weights after some steps on batches of these sizes in turn."""
    model = restt.ResTT(5, 2, 4, 3, device=device)
    model.reset_parameters(seed=1)
    rate = torch.tensor(1e-2, device=device)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate if device == "cuda" else 1e-2, capturable=device == "cuda")

    def step(x, y):
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    taken = kind(step)
    generator = torch.Generator().manual_seed(0)
    losses = []
    for number in range(steps):
        size = sizes[number % len(sizes)]
        x, y = torch.rand(size, 5, 2, generator=generator), torch.randint(0, 3, (size,), generator=generator)
        losses.append(float(taken(x.to(device), y.to(device))))
    return taken, losses, [parameter.detach().cpu().clone() for parameter in model.parameters()]


def test_replayed_steps_are_the_ordinary_ones():
    _, expected, weights = trained(lambda step: step)
    step, losses, found = trained(Recorded)
    assert (step.aside, step.records, step.replays) == (WARM_UPS, 1, 8 - WARM_UPS)
    assert losses == expected
    for got, want in zip(found, weights, strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=0)


def test_every_shape_has_a_recording_of_its_own():
    _, expected, _ = trained(lambda step: step, steps=12, sizes=(8, 8, 5))
    step, losses, _ = trained(Recorded, steps=12, sizes=(8, 8, 5))
    assert (step.aside, step.records) == (2 * WARM_UPS, 2)
    assert losses == expected


def test_another_precision_is_recorded_anew():
    step = Recorded(lambda x: x.sum())
    for precision in ("tf32", "float32"):
        with restt.chain.precision(precision):
            for _ in range(WARM_UPS + 2):
                step(torch.ones(3))
    assert step.records == 2


def test_the_next_call_overwrites_the_result():
    step = Recorded(lambda x: x.sum())
    for value in range(WARM_UPS):
        step(torch.full((2,), float(value)))
    first, second = step(torch.ones(2)), step(torch.full((2,), 3.0))
    assert first is second
    assert float(first) == 6.0


def test_on_the_cpu_a_call_is_the_step():
    calls = []
    step = CapturedStep(lambda x: calls.append(x))
    x = torch.ones(2)
    for _ in range(WARM_UPS + 2):
        step(x)
    assert len(calls) == WARM_UPS + 2
    assert all(given is x for given in calls)


def test_only_tensors_are_taken():
    with pytest.raises(TypeError, match="takes tensors only, got 3 at place 1"):
        CapturedStep(lambda x, y: x)(torch.ones(2), 3)
    with pytest.raises(TypeError, match="step must be a function of tensors"):
        CapturedStep(torch.ones(2))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu():
    _, expected, weights = trained(lambda step: step, "cuda", 12, (8, 8, 5))
    step, losses, found = trained(CapturedStep, "cuda", 12, (8, 8, 5))
    assert len(step._recordings) == 2
    assert losses == pytest.approx(expected, rel=1e-5)
    for got, want in zip(found, weights, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-6)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_what_cannot_be_recorded_says_what_to_do():
    step = CapturedStep(lambda x: float(x.sum()))
    for _ in range(WARM_UPS):
        step(torch.ones(2, device="cuda"))
    with pytest.raises(RuntimeError) as caught:
        step(torch.ones(2, device="cuda"))
    assert "capturable=True" in caught.value.__notes__[0]
