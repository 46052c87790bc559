import pytest
import torch

from restt.features import Trigonometric
from restt.train import Augmentation, TrainConfig, train
from restt.train.data import Batches, read_data
from tests.train.problems import assert_same_bits, measured, small_module

ROWS = 23


def batches(subset=None, runs=3, batch_size=5, seeds=None, run_ids=None, weight=None):
    x = torch.arange(ROWS, dtype=torch.float64)[:, None, None].expand(ROWS, 2, 1)
    rows = read_data(x, x[:, :, 0], weight, subset, runs)
    return Batches(rows, batch_size, seeds or [0] * runs, run_ids or list(range(runs)))


def seen(found, run):
    """The rows a run sees in an epoch, in order, fill-ups left out."""
    rows = []
    for batch in found.epoch(1):
        numbers, share = batch.x[min(run, len(batch.x) - 1), :, 0, 0], batch.share[min(run, len(batch.share) - 1)]
        rows += numbers[share > 0].tolist()
    return rows


def test_every_run_sees_each_of_its_rows_once_in_its_own_order():
    found = batches()
    orders = [seen(found, run) for run in range(3)]
    for order in orders:
        assert sorted(order) == list(range(ROWS))
    assert orders[0] != orders[1] != orders[2]
    assert found.order(1)[0].tolist() != found.order(2)[0].tolist()


@pytest.mark.parametrize("run", [0, 1, 2])
def test_a_runs_order_is_the_same_alone_or_among_many(run):
    subset = [torch.arange(4), torch.arange(20), torch.arange(3, 14)]
    together = seen(batches(subset), run)
    assert together == seen(batches([subset[run]], runs=1, run_ids=[run]), 0)
    assert sorted(together) == subset[run].tolist()


def test_own_seeds():
    same = batches(seeds=[4, 4, 5], run_ids=[0, 0, 0])
    assert seen(same, 0) == seen(same, 1) != seen(same, 2)


def test_rows_that_fit_one_batch_keep_their_order_and_are_shared():
    found = batches(batch_size=None)
    (batch,) = found.epoch(1)
    assert batch.x.shape[0] == 1
    assert batch.x[0, :, 0, 0].tolist() == list(range(ROWS))
    (batch,) = batches([torch.tensor([3, 1]), torch.tensor([2, 7, 5])], runs=2, batch_size=4).epoch(1)
    assert batch.x[1, :, 0, 0].tolist() == [2, 7, 5]


def test_rows_that_are_one_batch_are_gathered_once():
    subset = [torch.arange(4), torch.arange(9)]
    whole, parts = batches(subset, runs=2, batch_size=None), batches(subset, runs=2, batch_size=5)
    [first], [second] = whole.epoch(1), whole.epoch(2)
    assert first is second
    assert next(parts.epoch(1)) is not next(parts.epoch(1))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("batch_size", [None, 4, 7])
def test_shares_add_up_to_the_mean_over_the_runs_own_rows(batch_size, weighted):
    weight = torch.rand(ROWS, generator=torch.Generator().manual_seed(0), dtype=torch.float64) if weighted else None
    subset = [torch.arange(9), torch.tensor([22, 3, 17, 5]), torch.arange(5, 20)]
    found = batches(subset, batch_size=batch_size, weight=weight)
    total = torch.zeros(3, dtype=torch.float64)
    for batch in found.epoch(3):
        total += (batch.share * batch.x[..., 0, 0]).sum(1) * batch.count
    for run, rows in enumerate(subset):
        counted = torch.ones(len(rows), dtype=torch.float64) if weight is None else weight[rows]
        expected = (counted * rows).sum() / counted.sum()
        assert total[run] / len(rows) == pytest.approx(expected.item(), rel=1e-12)


@pytest.mark.parametrize(
    ("subset", "error", "message"),
    [
        ([[0, 1]], ValueError, r"each of the 3 run\(s\), got 1"),
        ([[0], [1], []], ValueError, "at least one row for every run, got none for run 2"),
        ([[0], [1], [23]], ValueError, "row numbers 0 … 22, got 23 … 23 for run 2"),
        ([[0], [0.5], [1]], TypeError, "row numbers, got .* for run 1"),
    ],
)
def test_bad_subsets_are_named(subset, error, message):
    with pytest.raises(error, match=message):
        batches([torch.tensor(part) if part else torch.zeros(0, dtype=torch.long) for part in subset])


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (torch.ones(5), r"shape \(23,\), one per row of x, got \(5,\)"),
        (torch.full((ROWS,), -1.0), "finite, at least 0"),
        (torch.zeros(ROWS), "above zero for at least one row"),
    ],
)
def test_bad_weights_are_named(weight, message):
    with pytest.raises(ValueError, match=message):
        batches(weight=weight)


def test_a_run_whose_rows_all_have_weight_zero_is_refused():
    weight = torch.ones(ROWS)
    weight[:2] = 0
    with pytest.raises(ValueError, match="above 0 for at least one row of every run"):
        batches([torch.arange(ROWS), torch.arange(2), torch.arange(ROWS)], weight=weight)


@pytest.mark.parametrize("batch_size", [16, None])
@pytest.mark.parametrize("held_out", ["rows", "row numbers"])
def test_mapping_each_batch_is_training_on_the_mapped_rows(batch_size, held_out):
    raw = torch.rand(60, 5, generator=torch.Generator().manual_seed(0))
    y = raw[:, 0] * raw[:, 2] - raw[:, 1]
    config = TrainConfig(epochs=3, batch_size=batch_size, lr=0.01, seed=0)
    found = []
    for feature_map in (Trigonometric(), None):
        x = raw if feature_map is not None else Trigonometric()(raw)
        options = {"validation": (x[:20], y[:20])} if held_out == "rows" else {"validation_subset": [range(20)]}
        module = small_module()
        records = list(train(module, x, y, config=config, feature_map=feature_map, **options))
        found.append((module, [measured(record) for record in records]))
    assert_same_bits(found[0][0], found[1][0])
    assert found[0][1] == found[1][1]


def test_rows_are_mapped_by_batch_after_augmentation():
    raw, seen = torch.rand(30, 9, generator=torch.Generator().manual_seed(0)), []

    def feature_map(values):
        seen.append(values)
        return Trigonometric()(values)

    config = TrainConfig(epochs=2, batch_size=8, augment=Augmentation(shift=1.0), seed=0)
    list(train(small_module(sites=9, outputs=2), raw, torch.arange(30) % 2, config=config, feature_map=feature_map))
    assert [len(values) for values in seen] == [30] + [8, 8, 8, 6] * 2  # the first is the check before the training
    assert not any((values[:, None] == raw).all(-1).any() for values in seen[1:])
