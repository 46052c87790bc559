import json
import os
import pickle
import resource
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from restt import ResTT, ResTTNetClassifier, ResTTNetRegressor, Topology, features, interop
from restt.estimators import ResTTRegressor, files, load
from restt.estimators.targets import Labels
from restt.train import Penalty
from tests.estimators.conftest import QUICK, short_fits
from tests.hasty import hasty_solvers

pytestmark = short_fits

FIXTURES = Path(__file__).parent / "fixtures"
PROBE = np.random.default_rng(7).normal(size=(9, 3))


@pytest.mark.parametrize("name", ["fitted_regressor", "fitted_classifier"])
@pytest.mark.parametrize("target", ["model", "deep/er/model", "one.safetensors"])
def test_round_trip(name, target, request, tmp_path):
    model = request.getfixturevalue(name)
    saved = model.save(tmp_path / target)
    assert saved == tmp_path / target
    same = load(saved)
    assert type(same) is type(model)
    np.testing.assert_array_equal(same._members(PROBE), model._members(PROBE))
    np.testing.assert_array_equal(same.predict(PROBE), model.predict(PROBE))
    assert same.get_params() == model.get_params()
    assert same.n_iter_ == model.n_iter_
    assert [record.train_loss for record in same.history_] == [record.train_loss for record in model.history_]
    if name == "fitted_classifier":
        assert same.classes_.dtype == model.classes_.dtype
        assert same.classes_.tolist() == model.classes_.tolist()


def test_mixed_table_round_trip(mixed, tmp_path):
    frame, y = mixed
    model = ResTTNetRegressor(**QUICK, handle_unknown="other").fit(frame, y)
    same = load(model.save(tmp_path / "m"))
    np.testing.assert_array_equal(same.predict(frame), model.predict(frame))
    assert same.feature_names_in_.tolist() == list(frame.columns)
    with pytest.raises(ValueError, match="Feature names"):
        same.predict(frame.rename(columns={"size": "large"}))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("topology", Topology.residual(3).without_chain(2)),
        ("feature_map", features.Polynomial(degree=3)),
        ("penalty", Penalty(chain=0.5)),
        ("penalty", {"chain": 0.5}),
        ("site_order", [2, 0, 1]),
        ("categorical_features", []),
        ("lr", np.float64(0.01)),
        ("random_state", np.int64(4)),
    ],
)
def test_parameters_survive(name, value, numbers, tmp_path):
    model = ResTTNetRegressor(**{**QUICK, "epochs": 2, name: value}).fit(*numbers)
    assert load(model.save(tmp_path / "m")).get_params()[name] == value


def test_class_weights_keep_their_keys(numbers, tmp_path):
    x, y = numbers
    model = ResTTNetClassifier(
        bond_dim=2, epochs=2, class_weight={0: 1.0, 1: 2.0}, random_state=np.random.RandomState(0)
    )
    same = load(model.fit(x, (y > 0).astype(int)).save(tmp_path / "m"))
    assert same.class_weight == {0: 1.0, 1: 2.0}
    assert same.random_state is None


def test_a_loaded_model_can_go_on(numbers, tmp_path):
    x, y = numbers
    model = ResTTNetRegressor(**QUICK, warm_start=True).fit(x, y)
    same = load(model.save(tmp_path / "m"))
    np.testing.assert_array_equal(same.fit(x, y).predict(x), model.fit(x, y).predict(x))
    assert same.n_iter_ == 60


def test_load_of_a_bare_module_gives_the_module(tmp_path):
    interop.save_module(ResTT(sites=2, feature_dim=1, bond_dim=2, outputs=1), tmp_path / "m.safetensors")
    assert isinstance(load(tmp_path / "m.safetensors"), ResTT)


def test_nothing_is_unpickled(fitted_regressor, tmp_path, monkeypatch):
    saved = fitted_regressor.save(tmp_path / "m")

    def refuse(*args, **kwargs):
        raise AssertionError("load must not unpickle")

    monkeypatch.setattr(pickle, "Unpickler", refuse)
    monkeypatch.setattr(pickle, "loads", refuse)
    monkeypatch.setattr(pickle, "load", refuse)
    assert load(saved).n_features_in_ == 3


def test_an_old_model_survives_a_failed_save(fitted_regressor, tmp_path, monkeypatch):
    saved = fitted_regressor.save(tmp_path / "m")
    before = (saved / files.NAME).read_bytes()

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        fitted_regressor.save(tmp_path / "m")
    assert (saved / files.NAME).read_bytes() == before
    assert [entry.name for entry in saved.iterdir()] == [files.NAME]


def test_saving_replaces_an_old_model(numbers, fitted_regressor, tmp_path):
    fitted_regressor.save(tmp_path / "m")
    other = ResTTNetRegressor(**{**QUICK, "epochs": 1}).fit(*numbers)
    assert load(other.save(tmp_path / "m")).n_iter_ == 1


def test_save_refuses_a_file_that_is_no_model(fitted_regressor, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"path must be a folder or end in .safetensors, got the existing file"):
        fitted_regressor.save(tmp_path / "notes.txt")
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_load_tells_what_is_wrong(fitted_regressor, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no such file.*nowhere"):
        load(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"is a folder, but not a model: it has no model.safetensors"):
        load(tmp_path)
    saved = fitted_regressor.save(tmp_path / "m") / files.NAME
    content = saved.read_bytes()
    for damaged, message in (
        (content[:-20], "cut short"),
        (b"", "not a readable safetensors file"),
        (content[:-4] + bytes(4), "damaged"),
        (b"\x80\x04N.", "not a readable safetensors file"),
    ):
        saved.write_bytes(damaged)
        with pytest.raises(ValueError, match=message):
            load(tmp_path / "m")


def with_state(path, **changes):
    module, extra = interop.load_module(path)
    interop.save_module(module, path, {"estimator": {**extra["estimator"], **changes}})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": files.VERSION + 1}, "estimator of version 4, this restt reads up to 3: upgrade restt"),
        ({"version": "new"}, "does not describe an estimator"),
        ({"kind": "os.system"}, "its kind is 'os.system', expected one of"),
        ({"parameters": {"bond_dim": {"kind": "riddle"}}}, "bond_dim is of the unknown kind 'riddle'"),
        ({"parameters": {"colour": 1}}, "does not describe an estimator this restt can build"),
        ({"encoding": {}}, "does not describe an estimator this restt can build"),
    ],
)
def test_load_refuses_what_it_cannot_read(fitted_regressor, tmp_path, changes, message):
    path = fitted_regressor.save(tmp_path / "m.safetensors")
    with_state(path, **changes)
    with pytest.raises(ValueError, match=message):
        load(path)


def test_the_description_is_plain_json(fitted_classifier, tmp_path):
    path = fitted_classifier.save(tmp_path / "m.safetensors")
    _, extra = interop.load_module(path)
    assert json.loads(json.dumps(extra, allow_nan=False)) == extra


def test_labels_without_a_plain_form_are_refused():
    labels = Labels(np.array([b"n", b"y"], dtype=object), np.array([0.5, 0.5]), None, True)
    with pytest.raises(TypeError, match="classes must be text, booleans or numbers to be saved, got b'n'"):
        labels.to_config()


def everywhere(value, path=()):
    """The places in nested lists and dicts, with what stands there."""
    yield path, value
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from everywhere(item, (*path, key))


def replaced(value, path, new):
    if not path:
        return new
    copied = value.copy()
    copied[path[0]] = replaced(value[path[0]], path[1:], new)
    return copied


STRANGE = [None, -1, 0, 3, 10**12, 0.5, "text", [], [1], [[1.0]], {}, True, "<U99999999"]


@pytest.mark.filterwarnings("ignore:.*(in the fit|fitted without feature names|is made for values in)")
@pytest.mark.parametrize("name", ["regressor", "classifier"])
def test_whatever_is_changed_in_a_file_is_refused_or_predicts(name, tmp_path, monkeypatch):
    module, extra = interop.load_module(FIXTURES / f"{name}.safetensors")
    state = {**extra["estimator"], "history": extra["estimator"]["history"][:1]}
    table = pd.DataFrame({"size": [0.5, np.nan], "colour": ["red", None], "count": [1, 2], "new": [True, False]})
    table = table if name == "regressor" else table.drop(columns="colour")
    places = [path for path, _ in everywhere(state) if path]
    rng, refused = np.random.default_rng(0), 0
    for _ in range(400):
        changed = replaced(state, places[rng.integers(len(places))], STRANGE[rng.integers(len(STRANGE))])
        monkeypatch.setattr(files, "load_module", lambda file, changed=changed: (module, {"estimator": changed}))
        try:
            model = load(tmp_path / "any.safetensors")
        except ValueError:
            refused += 1
            continue
        try:
            found = model.predict(table)
        except ValueError:  # the table is not the one that the changed model is for
            continue
        assert found.shape in ((2,), (2, 1))  # one column of y is a table too
    assert 100 < refused < 400


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("encoding", "columns", 1, "levels"), ["a", "b"], "widths of the encoding's sites"),
        (("encoding", "columns", 1, "levels"), [["a"], "b", "c"], "entries of the wrong kind"),
        (("encoding", "columns", 1, "missing"), "yes", "entries of the wrong kind"),
        (("encoding", "order"), [0, 0, 1, 2], "order must hold each of the columns 0 … 3 once"),
        (("encoding", "shift"), [0.0], "shift must have one entry per column"),
        (("encoding", "means"), [[0.0]], r"means must have shape \(4, 9\)"),
        (("target", "mean"), [0.0, 1.0], "mean and scale of y do not fit"),
        (("n_features_in",), 5, "columns: 5 where 4 belongs"),
        (("feature_names_in",), ["a"], "column names: 1 where 4 belongs"),
        (("feature_names_in",), [1, 2, 3, 4], "column names must be text"),
        (("precision",), "float8", "precision must be one of"),
        (("n_iter",), "many", "number of epochs"),
        (("history",), [{"epoch": 1}], "does not describe an estimator"),
        (("history",), 3, "does not describe an estimator"),
        (("parameters", "bond_dim"), -3, "'bond_dim' parameter"),
    ],
)
def test_parts_that_were_not_made_for_each_other_are_refused(place, value, message, tmp_path):
    path = load(FIXTURES / "regressor.safetensors").save(tmp_path / "m.safetensors")
    _, extra = interop.load_module(path)
    with_state(path, **replaced(extra["estimator"], place, value))
    with pytest.raises(ValueError, match=message):
        load(path)


@pytest.fixture(scope="module")
def posterior(tmp_path_factory):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"size": rng.normal(size=30), "colour": ["red", "green", "blue"] * 10})
    with hasty_solvers():
        model = ResTTRegressor(random_state=0).fit(table, table["size"] ** 2)
    return model.save(tmp_path_factory.mktemp("posterior") / "model.safetensors")


CONFIG, TENSORS = ("spread", "config"), ("spread", "tensors")
# Of both formats, of the present one, and of 0.8's.
FORGED = [
    ((*CONFIG, "sites", 0, "missing"), 15_000),
    ((*CONFIG, "sites", 0, "knots"), list(range(6000))),
    ((*CONFIG, "sites", 1, "levels"), 10**8),
    ((*CONFIG, "sites", 1, "levels"), -1),
    ((*CONFIG, "sites"), []),
    ((*CONFIG, "extra"), []),
    ((*TENSORS, "numbers"), files._packed(torch.zeros(30, 3))),
    ((*TENSORS, "numbers"), files._packed(torch.zeros(2000, 2))),
    ((*TENSORS, "quantiles"), files._packed(torch.ones(3, 1))),
    (("site_covariances",), files._packed(torch.ones(2, 3, 3))),
    (("encoding", "feature_map"), {"name": "onehot", "parameters": {"levels": 10**8}, "fitted": None}),
]
FORGED_NOW = [
    ((*CONFIG, "components"), []),
    ((*CONFIG, "components", 0, "terms"), None),
    ((*CONFIG, "weights"), [1.0] * 9),
    ((*CONFIG, "constant"), "much"),
    ((*TENSORS, "mean.1"), files._packed(torch.ones(9))),
    ((*TENSORS, "moment.0"), files._packed(torch.ones(9, 9))),
    ((*TENSORS, "roots"), files._packed(torch.zeros(3, 30))),
    ((*TENSORS, "means"), files._packed(torch.zeros(3, 10**6, 0))),
    ((*CONFIG, "rows"), 0),
    ((*CONFIG, "rows"), 2.5),
    ((*TENSORS, "thetas"), files._packed(torch.zeros(3, 1))),
    ((*TENSORS, "means"), files._packed(torch.full((3, 30, 1), torch.nan))),
    (("prior", "names"), ["size"]),
    (("prior", "names"), [1, 2]),
    (("prior", "members"), None),
    (("target", "model", "power"), [2.5]),
    (("target", "model", "residuals"), [[[0.0]]]),
    (("fit_report",), 3),
]
FORGED_BEFORE = [
    ((*CONFIG, "theta"), [0.0]),
    ((*CONFIG, "theta"), None),
    ((*CONFIG, "reach", "low"), [0.0, 0.0, 0.0]),
    ((*TENSORS, "weights"), files._packed(torch.ones(1))),
    ((*TENSORS, "numbers"), files._packed(torch.zeros(0, 3))),
    ((*CONFIG, "reach", "low"), [1e9]),  # above high
    ((*CONFIG, "reach", "low"), 0.0),
    ((*CONFIG, "reach", "below"), [0.0]),
    ((*CONFIG, "reach", "above"), [-1.0]),
]


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [
        *((name, *case) for name in ("now", "before") for case in FORGED),
        *(("now", *case) for case in FORGED_NOW),
        *(("before", *case) for case in FORGED_BEFORE),
    ],
)
def test_a_forged_posterior_is_refused_at_the_cost_of_its_file(name, place, value, posterior, tmp_path):
    path = tmp_path / "m.safetensors"
    path.write_bytes((posterior if name == "now" else FIXTURES / "posterior-log.safetensors").read_bytes())
    _, extra = interop.load_module(path)
    with_state(path, **replaced(extra["estimator"], place, value))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match=r"m\.safetensors does not describe an estimator this restt can build: .+"):
        load(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 1024


def test_a_distribution_of_other_sites_than_the_models_is_refused(posterior, tmp_path):
    """All of its parts fit each other, but not the encoding."""
    path = tmp_path / "m.safetensors"
    path.write_bytes(posterior.read_bytes())
    _, extra = interop.load_module(path)
    state = replaced(extra["estimator"], (*CONFIG, "sites", 1, "levels"), 7)
    with_state(path, **replaced(state, (*TENSORS, "mean.1"), files._packed(torch.full((7,), 1 / 7))))
    with pytest.raises(ValueError, match="states of the distribution"):
        load(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"classes": ["a" * 1100] * 10**5, "dtype": "<U1100"}, "classes cannot be of dtype"),
        ({"dtype": "<U99999999"}, "classes cannot be of dtype '<U99999999'"),
        ({"dtype": "V99999999"}, "classes cannot be of dtype"),
        ({"classes": [[1], [2], [3]]}, "classes must be text, booleans or numbers"),
        ({"classes": ["a", "b"]}, "prior must have one entry per class"),
        ({"temperature": 0}, "temperature above 0"),
    ],
)
def test_labels_that_make_no_sense_are_refused_before_anything_is_allocated(change, message):
    config = load(FIXTURES / "classifier.safetensors").target_.to_config()
    with pytest.raises(ValueError, match=message):
        Labels.from_config({**config, **change})


def test_labels_keep_a_dtype_wider_than_they_are(numbers, tmp_path):
    x, y = numbers
    model = ResTTNetClassifier(**QUICK).fit(x, np.where(y > 0, "yes", "no").astype("<U40"))
    assert load(model.save(tmp_path / "m")).classes_.dtype == np.dtype("<U40")
