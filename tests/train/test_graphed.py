import pytest
import torch
from torch.nn.functional import mse_loss

import restt
from restt.train.graphed import GraphedStep

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="a CUDA graph needs a CUDA device")


def adam(module, **options):
    return torch.optim.Adam(module.parameters(), lr=1e-2, **options)


def test_cpu_is_refused():
    module = restt.ResTT(4, 2, 3, 1)
    with pytest.raises(ValueError, match="needs module and batch on a CUDA device, got cpu"):
        GraphedStep(module, mse_loss, adam(module), torch.rand(5, 4, 2), torch.rand(5, 1))


@on_gpu
def test_optimizer_must_be_capturable():
    module = restt.ResTT(4, 2, 3, 1, device="cuda")
    with pytest.raises(ValueError, match="capturable=True"):
        GraphedStep(module, mse_loss, adam(module), torch.rand(5, 4, 2).cuda(), torch.rand(5, 1).cuda())


@on_gpu
def test_replay_equals_plain_steps_from_where_training_was():
    batches = [(torch.rand(16, 6, 2).cuda(), torch.rand(16, 3).cuda()) for _ in range(4)]

    def plain_step(module, optimizer, x, target):
        optimizer.zero_grad(set_to_none=True)
        loss = mse_loss(module(x), target)
        loss.backward()
        optimizer.step()
        return loss.item()

    losses = {}
    for graphed in (False, True):
        module = restt.ResTT(6, 2, 5, 3, device="cuda")
        module.reset_parameters(seed=0)
        optimizer = adam(module, fused=True, capturable=True)
        losses[graphed] = [plain_step(module, optimizer, *batches[0])]
        if graphed:
            step = GraphedStep(module, mse_loss, optimizer, *batches[0])
            losses[graphed] += [step(*batch).item() for batch in batches[1:]]
        else:
            losses[graphed] += [plain_step(module, optimizer, *batch) for batch in batches[1:]]
    assert losses[True] == losses[False]


@on_gpu
def test_other_shapes_are_refused():
    module = restt.ResTT(4, 2, 3, 1, device="cuda")
    x, target = torch.rand(5, 4, 2).cuda(), torch.rand(5, 1).cuda()
    step = GraphedStep(module, mse_loss, adam(module, fused=True, capturable=True), x, target)
    with pytest.raises(ValueError, match=r"x must have the captured shape \(5, 4, 2\)"):
        step(x[:3], target)
    with pytest.raises(ValueError, match=r"captured with 1 target\(s\), got 0"):
        step(x)
