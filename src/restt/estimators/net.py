"""Training by gradients, from the table to the fitted attributes: the base of both net estimators."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from os import PathLike
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split

from restt import chain
from restt._common.compat_sklearn import Interval, fit_context
from restt._common.devices import fitting_threads
from restt._common.errors import shown, warn_caller
from restt._common.ranks import read_group
from restt.data import Stream
from restt.estimators.base import BaseResTT
from restt.estimators.encoding import KNOTS, fit_encoding, site_covariances
from restt.estimators.gradient import (
    Examples,
    Prepared,
    check_same_shape,
    encode,
    encode_stream,
    multiplication,
    new_module,
    train_config,
    why_it_failed,
)
from restt.estimators.progress import CallbackSupport, History, shown_progress, with_callback_calls, with_callbacks
from restt.estimators.settings import TRAINING, Settings, check_fits, settle
from restt.estimators.streams import read_stream
from restt.estimators.targets import Target
from restt.features import FeatureMap
from restt.topology import Topology
from restt.train import EpochRecord, Event


@dataclass(kw_only=True, eq=False, repr=False)
class BaseNet(CallbackSupport, BaseResTT):
    """A training but for the meaning of y. The fields are the parameters of both estimators."""

    topology: str | Topology = "residual"
    feature_map: str | FeatureMap = "auto"
    bond_dim: int = 10
    sigma2: str | float = "auto"
    loss: str = "auto"
    epochs: str | int = "auto"
    lr: float = 0.05
    schedule: str = "cosine"
    batch_size: str | int = "auto"
    penalty: Any = "auto"
    dropout: float = 0.0
    runs: int = 1
    early_stopping: bool | int = False
    validation_fraction: float = 0.1
    site_order: Any = "auto"
    categorical_features: Any = None
    handle_unknown: str = "other"
    handle_missing: str = "average"
    warm_start: bool = False
    checkpoint_dir: str | PathLike[str] | None = None
    precision: str = "auto"
    device: Any = "auto"
    random_state: Any = None
    verbose: int | bool = 0

    _init: ClassVar[str] = "balanced"  # the paper's recipe draws weights otherwise
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **BaseResTT._parameter_constraints,
        **TRAINING,
        "bond_dim": [Interval(Integral, 1, None, closed="left")],
    }

    @abstractmethod
    def _new_target(self, y: np.ndarray, weights: np.ndarray, classes: np.ndarray | None) -> Target:
        """Learn the encoding of targets from the rows of a first fit.

        ``classes`` are those that ``partial_fit`` of a classifier was given.
        """

    @property
    @abstractmethod
    def _loss(self) -> str:
        """The training's loss."""

    def _split_labels(self, y: np.ndarray, held: int) -> np.ndarray | None:
        """Return labels whose shares a random split of ``held`` rows keeps."""
        return None

    def _finish(self, examples: Examples) -> None:
        """Learn what depends on the weights, on held-out rows where there are some."""

    @with_callbacks
    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the model; with ``warm_start`` go on from the last fit.

        A fit that ends worse than the mean of y (or the shares of the classes) on its own rows, or that exploded again
        and again, gives a ConvergenceWarning.

        Parameters
        ----------
        X : table of shape (B, C)
            numpy array, pandas or polars data frame, scipy sparse matrix, or anything that becomes an array. Rows that
            do not fit into memory are a :class:`restt.data.Stream`, which names its target: y is then None. Columns are
            learned from 50,000 rows of it, and the training is on all.
        y : (B,) targets
            For regression also (B, O).
        sample_weight : (B,), optional
            Weights of the rows: a row of weight 2 is two rows, one of weight 0 is left out.

        Returns
        -------
        self
        """
        fitting = self._for_a_fit()
        records, epochs = fitting._start(X, y, sample_weight, fresh=self._starts_fresh())
        records = shown_progress(records, epochs, self._shown)
        try:
            for _ in with_callback_calls(self, records, epochs, X, y, fitting._state_of_this_epoch):
                pass
        finally:  # a training that was stopped is a fit too, of the epochs it has had
            del records  # which a callback may have left before their end
            self._become(fitting)
        return self

    @fit_context(prefer_skip_nested_validation=True)
    def fit_epochs(
        self, X: Any, y: Any = None, sample_weight: Any = None, validation: Any = None
    ) -> Iterator[EpochRecord]:
        """Fit, one epoch for each step of the iteration; after each the estimator can predict. Leave the loop to stop.

        ``validation`` is (X, y) or (X, y, sample_weight) of held-out rows, whose loss and metrics are then in each
        record.

        >>> import numpy as np
        >>> from restt.estimators import ResTTNetRegressor
        >>> X = np.random.default_rng(0).random((60, 3))
        >>> model = ResTTNetRegressor(random_state=0)
        >>> for record in model.fit_epochs(X[:40], X[:40, 0], validation=(X[40:], X[40:, 0])):
        ...     if record.validation["r2"][0] > 0.9:
        ...         break
        >>> model.n_iter_ == record.epoch < 100
        True
        """
        fitting = self._for_a_fit()
        records, epochs = fitting._start(X, y, sample_weight, fresh=self._starts_fresh(), validation=validation)
        self._become(fitting)
        return shown_progress(records, epochs, self._shown)

    def _pass_once(self, X: Any, y: Any, sample_weight: Any, classes: np.ndarray | None = None) -> Self:
        """Make one pass over the rows: ``partial_fit``."""
        fresh, fitting = not self.__sklearn_is_fitted__(), self._for_a_fit()
        for _ in fitting._start(X, y, sample_weight, fresh=fresh, once=True, classes=classes)[0]:
            pass
        self._become(fitting)
        return self

    def _start(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        *,
        fresh: bool,
        once: bool = False,
        validation: Any = None,
        classes: np.ndarray | None = None,
    ) -> tuple[Iterator[EpochRecord], int]:
        """Read everything and return the records of the training, which iterating makes happen, and their number.

        ``fresh`` begins with new weights; ``once`` is a single pass over the rows.
        """
        sample = None
        if isinstance(X, Stream):
            if once:
                raise TypeError("partial_fit passes over a table, got a stream: fit takes it whole")
            with read_group("auto").agreed("read the rows"):
                X, y, sample_weight, sample = read_stream(self, X, y, sample_weight)
        given = self._read_examples(X, y, sample_weight, reset=fresh, sample=sample)
        held_out = None if validation is None else self._read_validation(validation)
        with fitting_threads(given.encoding_work):
            prepared = self._prepare(given, held_out, fresh=fresh, once=once, classes=classes)
            records = prepared.start(None if once else self.checkpoint_dir)
            # Nothing can be refused any more.
            self._adopt(prepared, fresh=fresh)
            settings = prepared.settings
            if fresh:
                numbers = self.encoding_.numbers(given.table)
                self.site_covariances_ = site_covariances(self.encoding_, numbers, given.weights, settings.device)
        return self._epochs(records, prepared, judge_fit=not once), settings.epochs

    def _prepare(
        self,
        given: Examples,
        held_out: Examples | None = None,
        *,
        fresh: bool = True,
        once: bool = False,
        classes: np.ndarray | None = None,
        like: Prepared | None = None,
    ) -> Prepared:
        """Do everything up to the training and leave the estimator unchanged.

        ``like`` was prepared with the same rows by an estimator that differs at most in how it trains: its encoded rows
        are taken.
        """
        if like is not None:
            encoding, target = like.encoding, like.target
        elif fresh:
            # Before columns are read one by one: a table may be too large for that.
            likely = self._settings(given.rows, KNOTS * given.table.width)
            self._check_size(given, KNOTS, likely, outputs=1)
            encoding = fit_encoding(
                given.table,
                given.weights,
                feature_map=self.feature_map,
                site_order=self.site_order,
                categorical_features=self.categorical_features,
                handle_unknown=self.handle_unknown,
                handle_missing=self.handle_missing,
                device=likely.device,
            )
            target = self._new_target(given.y, given.weights, classes)
        else:
            check_same_shape(self.module_, self)
            encoding, target = self.encoding_, self.target_
        settings = self._settings(given.rows, sum(encoding.widths))
        self._check_size(given, max(encoding.widths), settings, target.outputs)
        seed = self._new_seed()
        if like is not None and like.has_rows_of(settings, seed):
            rows, held = like.rows, like.held
        else:
            kept, out = self._split(given, held_out, None if once else seed)
            rows = encode(kept, encoding, target, settings)
            held = None if out is None else encode(out, encoding, target, settings)
        streamed = encode_stream(rows.examples, None if held is None else held.examples, encoding, target)

        done = 0
        if fresh:
            module = new_module(self, encoding, target, rows, settings, seed)
        else:
            # A copy: predictions are of the last fit until this one has ended.
            module = copy.deepcopy(self.module_).to(device=settings.device, dtype=settings.dtype)
            done = self.n_iter_
        # None leaves the seed to the checkpoint; a fit that goes on must not repeat its order of rows.
        order_seed = None if self._is_unseeded() else seed + done
        count = len(rows.examples) if streamed is None else len(streamed)
        config = train_config(self, self._loss, target, settings, count, order_seed, once=once)
        return Prepared(module, encoding, target, rows, held, streamed, config, settings, seed)

    def _adopt(self, prepared: Prepared, *, fresh: bool = True) -> None:
        """Take over what was prepared."""
        if fresh:
            self.history_, self.n_iter_ = History(), 0
            self.site_means_ = prepared.encoding.site_means
            self.site_covariances_ = None
        self.history_ = History(self.history_)
        self.module_, self.encoding_, self.target_ = prepared.module, prepared.encoding, prepared.target
        self.precision_ = prepared.settings.precision

    def _epochs(self, records: Iterator[EpochRecord], prepared: Prepared, *, judge_fit: bool) -> Iterator[EpochRecord]:
        """Pass records on and keep them; once they end, finish and, with ``judge_fit``, warn of a fit that failed."""
        before, known = self.n_iter_, len(self.history_)
        try:
            while True:
                # For the epoch only, not between epochs.
                with chain.precision(multiplication(self.precision_)), fitting_threads(prepared.settings.step_work):
                    record = next(records, None)
                if record is None:
                    break
                record = replace(record, epoch=before + record.epoch)
                self.history_.append(record)
                self.n_iter_ = record.epoch
                yield record
        except GeneratorExit:
            self._finish(prepared.judged)
            raise
        self._finish(prepared.judged)
        if judge_fit:
            self._warn_if_failed(prepared, [event for record in self.history_[known:] for event in record.events])

    def _warn_if_failed(self, prepared: Prepared, events: Sequence[Event]) -> None:
        """Give a ConvergenceWarning where a training with these events has failed."""
        reason = why_it_failed(self.module_, prepared, events)
        if reason:
            advice = "Try a smaller lr, more epochs or another penalty"
            warn_caller(f"{type(self).__name__}: {reason}. {advice}", ConvergenceWarning)

    def _settings(self, rows: int, width: int) -> Settings:
        return settle(
            rows,
            width,
            int(self.bond_dim),
            int(self.runs),
            device=self.device,
            precision=self.precision,
            batch_size=self.batch_size,
            epochs=self.epochs,
        )

    def _check_size(self, examples: Examples, width: int, settings: Settings, outputs: int) -> None:
        sizes = examples.table.width, width, int(self.bond_dim), outputs, int(self.runs), len(examples)
        check_fits(*sizes, settings)

    def _read_validation(self, validation: Any) -> Examples:
        if not isinstance(validation, (tuple, list)) or len(validation) not in (2, 3):
            raise TypeError(f"validation must be (X, y) or (X, y, sample_weight), got {shown(validation)}")
        weights = validation[2] if len(validation) == 3 else None
        return self._read_examples(validation[0], validation[1], weights, reset=False)

    def _split(self, given: Examples, held_out: Examples | None, seed: int | None) -> tuple[Examples, Examples | None]:
        """Return rows to train on and held-out rows: those given, or a random part for early stopping."""
        if held_out is not None or not self.early_stopping or seed is None:
            return given, held_out
        count = len(given)
        if count < 2:
            raise ValueError("early_stopping holds rows out and needs at least 2 rows, got n_samples=1")
        held = min(count - 1, max(1, round(self.validation_fraction * count)))
        # A checkpoint can only go on with the same split, so without a seed of its own the split has a fixed one.
        fixed = 0 if self._is_unseeded() else seed
        labels = self._split_labels(given.y, held)
        kept, out = train_test_split(np.arange(count), test_size=held, random_state=fixed, stratify=labels)
        return given.take(kept), given.take(out)

    def _state_of_this_epoch(self) -> dict[str, Any]:
        fitted = {name: value for name, value in vars(self).items() if name.endswith("_")}
        return {**fitted, "module_": copy.deepcopy(self.module_), "history_": History(self.history_)}

    def _starts_fresh(self) -> bool:
        return not (self.warm_start and self.__sklearn_is_fitted__())

    def _is_unseeded(self) -> bool:
        return self.random_state is None and self.checkpoint_dir is not None
