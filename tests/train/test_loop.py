import math
from dataclasses import replace

import pytest
import torch

from restt.train import TrainConfig, train
from restt.train.runs import RunsView
from tests.train.problems import assert_same_bits, classification, measured, regression, small_module, weights

CONFIG = TrainConfig(epochs=4, batch_size=16, lr=1e-2, schedule="cosine", weight_decay=1e-4, seed=5)


def trained(module, *args, **options):
    return list(train(module, *args, **options))


def test_the_loop_is_the_loop_one_would_write_by_hand():
    x, y = classification()
    config = TrainConfig(epochs=3, batch_size=None, lr=1e-2, weight_decay=1e-3, schedule="cosine", loss="cross-entropy")
    module, byhand = small_module(outputs=3), small_module(outputs=3)
    records = trained(module, x, y, config=config)
    optimizer = torch.optim.Adam(byhand.parameters(), lr=1e-2, weight_decay=1e-3)
    for epoch, record in enumerate(records):
        optimizer.param_groups[0]["lr"] = 1e-2 * 0.5 * (1 + math.cos(math.pi * epoch / 3))
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(byhand(x), y)
        loss.backward()
        norm = torch.linalg.vector_norm(torch.stack([p.grad.norm() for p in byhand.parameters()]))
        optimizer.step()
        assert record.train_loss == (pytest.approx(loss.item(), rel=1e-5),)
        assert record.gradient_norm == (pytest.approx(norm.item(), rel=1e-5),)
        assert record.lr == (pytest.approx(optimizer.param_groups[0]["lr"]),)
    for name, value in byhand.state_dict().items():
        assert torch.allclose(module.state_dict()[name], value, rtol=1e-4, atol=1e-6), name


def test_the_same_seed_gives_the_same_bits():
    x, y = regression()
    first, second, other = small_module(runs=2), small_module(runs=2), small_module(runs=2)
    config = TrainConfig(epochs=3, batch_size=16, lr=1e-2, dropout=0.2, ema=0.9, seed=5)
    records = [[measured(record) for record in trained(m, x, y, config=config)] for m in (first, second)]
    assert_same_bits(first, second)
    assert records[0] == records[1]
    trained(other, x, y, config=TrainConfig(epochs=3, batch_size=16, lr=1e-2, dropout=0.2, ema=0.9, seed=6))
    assert not torch.equal(first.chain, other.chain)


def test_without_a_seed_torchs_own_governs():
    x, y = regression()
    found = []
    for _ in range(2):
        torch.manual_seed(11)
        module = small_module()
        trained(module, x, y, config=TrainConfig(epochs=2, batch_size=16))
        found.append(module)
    assert_same_bits(*found)


SUBSET = [list(range(40)), list(range(10, 60)), list(range(0, 60, 3)), list(range(5, 15))]
MANY = {
    "epochs": (5, 3, 4, 5),
    "lr": (1e-2, 1e-2, 3e-2, 2e-2),
    "weight_decay": (0.0, 1e-3, 0.0, 1e-2),
    "dropout": (0.1, 0.1, 0.0, 0.3),
    "clip_norm": (1.0, 0.5, 1.0, 1.0),
    "seed": (5, 5, 6, 5),
}


@pytest.mark.parametrize("run", range(4))
def test_a_run_alone_equals_the_run_among_many(run):
    x, y = regression(dtype=torch.float64)
    common = {"batch_size": 16, "schedule": "warmup-cosine", "ema": 0.8}
    together, alone = small_module(runs=4, dtype=torch.float64), small_module(runs=1, dtype=torch.float64)
    alone.reset_parameters(seed=3, run_ids=[run])
    assert torch.equal(together.chain[run], alone.chain[0])
    shared = {"subset": SUBSET, "validation_subset": SUBSET[::-1]}
    records = trained(together, x, y, config=TrainConfig(**MANY, **common), **shared)
    own = {name: values[run] for name, values in MANY.items()}
    config = TrainConfig(**own, **common, run_ids=[run])
    mine = trained(alone, x, y, config=config, subset=[SUBSET[run]], validation_subset=[SUBSET[::-1][run]])
    assert len(mine) == MANY["epochs"][run]
    for found, expected in zip(records, mine, strict=False):
        assert found.train_loss[run] == pytest.approx(expected.train_loss[0], rel=1e-9)
        assert found.lr[run] == expected.lr[0]
        assert found.gradient_norm[run] == pytest.approx(expected.gradient_norm[0], rel=1e-9)
        assert found.validation["r2"][run] == pytest.approx(expected.validation["r2"][0], rel=1e-9)
    for name, value in weights(alone).items():
        assert torch.allclose(together.state_dict()[name][run], value[0], rtol=1e-9, atol=1e-12), name


def test_finished_runs_leave_the_batch_and_keep_their_weights(monkeypatch):
    x, y = regression()
    sizes = []
    forward = RunsView.__call__

    def noting(self, data, given=None):
        sizes.append(self.runs)
        return forward(self, data, given)

    monkeypatch.setattr(RunsView, "__call__", noting)
    module = small_module(runs=3)
    seen = []
    for record in train(module, x, y, config=TrainConfig(epochs=(1, 3, 2), batch_size=None, lr=1e-2)):
        seen.append((record.runs, module.chain[0].detach().clone()))
        assert [math.isnan(value) for value in record.train_loss] == [run not in record.runs for run in range(3)]
    assert sizes[1:] == [3, 2, 1]
    assert [runs for runs, _ in seen] == [(0, 1, 2), (1, 2), (1,)]
    assert torch.equal(seen[0][1], module.chain[0])
    assert [event.run for event in record.events] == [1]


def test_the_train_loss_is_the_mean_over_the_runs_own_rows():
    x, y = regression(dtype=torch.float64)
    weight = torch.rand(60, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    module = small_module(runs=4, dtype=torch.float64)
    errors = (module(x).detach()[..., 0] - y).square()
    config = TrainConfig(epochs=1, batch_size=7, lr=1e-13)
    (record,) = train(module, x, y, config=config, subset=SUBSET, sample_weight=weight)
    for run, rows in enumerate(SUBSET):
        expected = (errors[run][rows] * weight[rows]).sum() / weight[rows].sum()
        assert record.train_loss[run] == pytest.approx(expected.item(), rel=1e-9)


def test_weights_count_as_repeated_rows():
    x, y = regression(dtype=torch.float64)
    weight = torch.arange(60) % 3
    repeated = torch.repeat_interleave(torch.arange(60), weight)
    config = TrainConfig(epochs=5, batch_size=None, lr=1e-2)
    one, other = small_module(dtype=torch.float64), small_module(dtype=torch.float64)
    trained(one, x, y, config=config, sample_weight=weight)
    trained(other, x[repeated], y[repeated], config=config)
    for name, value in weights(one).items():
        assert torch.allclose(value, other.state_dict()[name], rtol=1e-8, atol=1e-11), name


def test_early_stopping_returns_the_best_epoch_of_each_run():
    x, y = regression(40)
    noise = torch.randn(40, generator=torch.Generator().manual_seed(1)) * 0.3
    module = small_module(runs=2)
    config = TrainConfig(epochs=300, batch_size=None, lr=(0.1, 0.03), patience=10, keep="best", seed=0)
    held_out = (x[20:], y[20:])
    seen = []
    for record in train(module, x[:20], (y + noise)[:20], config=config, validation=held_out):
        seen.append((record, weights(module)))
    for run in range(2):
        losses = [record.validation["loss"][run] for record, _ in seen if run in record.runs]
        best = losses.index(min(losses))
        assert len(losses) == best + 1 + 10
        kept = seen[best][1] if len(seen) > best else None
        assert torch.equal(module.chain[run], kept["chain"][run])
        stops = [event for record, _ in seen for event in record.events if event.run == run]
        assert [event.kind for event in stops] == ["early-stopped"]
        assert f"best epoch {best + 1}" in stops[0].message


def test_the_moving_average_is_what_is_evaluated_and_returned():
    x, y = regression()
    plain, averaged = small_module(), small_module()
    raw, mean = [weights(plain)["chain"]], None
    for _ in train(plain, x, y, config=TrainConfig(epochs=6, batch_size=None, lr=1e-2)):
        raw.append(weights(plain)["chain"])
    config = TrainConfig(epochs=6, batch_size=None, lr=1e-2, ema=0.7)
    records = trained(averaged, x, y, config=config, validation=(x, y))
    mean = raw[0]
    for step, value in enumerate(raw[1:]):
        decay = min(0.7, (1 + step) / (10 + step))
        mean = decay * mean + (1 - decay) * value
    assert torch.allclose(averaged.chain, mean, atol=1e-6)
    loss = (averaged(x)[:, 0] - y).square().mean()
    assert records[-1].validation["loss"][0] == pytest.approx(loss.item(), rel=1e-5)


def test_clipping_bounds_each_runs_gradient(monkeypatch):
    monkeypatch.setattr("restt.train.step.BETAS", (0.0, 0.0))
    monkeypatch.setattr("restt.train.step.EPS", 1e3)
    x, y = regression(dtype=torch.float64)
    module = small_module(runs=2, dtype=torch.float64)
    config = TrainConfig(epochs=1, batch_size=None, clip_norm=(1e-3, 1e6), lr=1.0, rates="uniform")
    before = weights(module)
    (record,) = train(module, x, y, config=config)
    moved = sum((module.state_dict()[name] - value).flatten(1).square().sum(1) for name, value in before.items()).sqrt()
    # With eps far above the gradient, Adam's step is lr · gradient / eps.
    assert moved[0].item() == pytest.approx(1e-3 / 1e3, rel=1e-2)
    assert moved[1].item() == pytest.approx(record.gradient_norm[1] / 1e3, rel=1e-2)
    assert record.gradient_norm[0] > 1e-2


def test_any_torch_module_trains():
    x, y = regression()
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(10, 8), torch.nn.BatchNorm1d(8), torch.nn.Tanh(), torch.nn.Linear(8, 1)
    )
    records = trained(model, x, y, config=TrainConfig(epochs=60, batch_size=20, lr=1e-2, seed=0), validation=(x, y))
    assert records[-1].validation["r2"][0] > 0.9
    assert model[2].num_batches_tracked == 60 * 3
    model.eval()
    loss = (model(x)[:, 0] - y).square().mean()
    assert records[-1].validation["loss"][0] == pytest.approx(loss.item(), rel=1e-5)


def test_frozen_parameters_stay():
    x, y = regression()
    module = small_module(runs=2)
    module.chain.requires_grad_(False)
    before = weights(module)
    trained(module, x, y, config=CONFIG)
    assert torch.equal(module.chain, before["chain"])
    assert not torch.equal(module.linear, before["linear"])


def test_numpy_arrays_are_read():
    x, y = regression()
    one, other = small_module(), small_module()
    trained(one, x, y, config=CONFIG)
    trained(other, x.double().numpy(), y.numpy(), config=CONFIG, subset=[list(range(60))])
    assert_same_bits(one, other)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"y": torch.zeros(5)}, ValueError, "same number of rows, got 60 and 5"),
        ({"x": torch.full((60, 5, 2), math.nan)}, ValueError, "x must be finite"),
        ({"x": torch.zeros(60, 4, 2)}, ValueError, "4 sites"),
        ({"x": torch.zeros(0, 5, 2), "y": torch.zeros(0)}, ValueError, "at least one row"),
        ({"config": TrainConfig(lr=(0.1, 0.2, 0.3))}, ValueError, "lr must be one value or one for each of the 2"),
        ({"config": {"lr": 0.1}}, TypeError, "config must be a restt.train.TrainConfig"),
        ({"validation": torch.zeros(3)}, TypeError, r"validation must be \(x, y\)"),
        ({"validation": (torch.zeros(3, 5, 2), torch.zeros(3).long())}, ValueError, "both be classes or both values"),
    ],
)
def test_bad_arguments_are_named_before_any_work(change, error, message):
    x, y = regression()
    arguments = {"x": x, "y": y, "config": CONFIG} | change
    with pytest.raises(error, match=message):
        train(small_module(runs=2), **arguments)


def test_leaving_early_leaves_the_module_at_the_last_epoch():
    x, y = regression()
    module, full = small_module(), small_module()
    for record in train(module, x, y, config=CONFIG):
        if record.epoch == 2:
            break
    seen = []
    for _ in train(full, x, y, config=CONFIG):
        seen.append(weights(full))
    assert torch.equal(module.chain, seen[1]["chain"])


def test_classes_train_by_cross_entropy_unless_another_loss_is_asked_for():
    x, y = classification()
    losses = {}
    for loss in ("auto", "cross-entropy", "mse"):
        (record,) = train(small_module(outputs=3), x, y, config=TrainConfig(epochs=1, lr=1e-13, loss=loss))
        losses[loss] = record.train_loss[0]
    output = small_module(outputs=3)(x).detach()
    assert (
        losses["auto"]
        == losses["cross-entropy"]
        == pytest.approx(torch.nn.functional.cross_entropy(output, y).item(), rel=1e-5)
    )
    assert losses["mse"] != losses["auto"]
    assert TrainConfig.paper().loss == "mse"


def test_values_train_by_the_squared_error():
    one, other = small_module(), small_module()
    trained(one, *regression(), config=CONFIG)
    trained(other, *regression(), config=replace(CONFIG, loss="mse"))
    assert_same_bits(one, other)
