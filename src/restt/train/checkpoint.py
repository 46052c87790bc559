"""Checkpoints of a training in one folder: ``last``, the one before it, and ``best``.

``last.safetensors`` holds everything a training needs to go on bit for bit; ``previous.safetensors`` is the one before,
used where the last is damaged; ``best.safetensors`` holds each run's best weights alone.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from restt._common.tensorfile import BadFile, read_file, remove_leftovers, write_file
from restt.train.fingerprint import differences
from restt.train.record import Event
from restt.train.stacked import Stacked
from restt.train.state import TrainState

LAST, PREVIOUS, BEST = "last.safetensors", "previous.safetensors", "best.safetensors"
# Writing takes at most one part in this many of the time: epochs shorter than that share a checkpoint.
WORK_PER_WRITE = 20.0


class Checkpoints:
    """Reads and writes one training's folder. ``entries`` is the training's fingerprint."""

    def __init__(self, folder: str | Path, entries: Mapping[str, Any]) -> None:
        self.folder = Path(folder)
        self.entries: dict[str, Any] = json.loads(json.dumps(entries))
        self.seeds: list[int] = []
        self.saved_epoch = -1  # of the newest checkpoint in the folder
        self._last_is_good = False
        self._best_epochs: list[int] | None = None
        self._written = 0.0
        self._cost = 0.0
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            for name in (LAST, PREVIOUS, BEST):
                remove_leftovers(self.folder / name)
        except OSError as error:
            raise self._failure("make the checkpoint folder", error) from error

    def load(self, state: TrainState) -> list[Event]:
        """Bring ``state`` to the newest good checkpoint; nothing happens in an empty folder.

        Raises ValueError where the checkpoint belongs to another training, saying what differs, and where there are
        checkpoints but none is good.
        """
        events: list[Event] = []
        refused: list[str] = []
        for name in (LAST, PREVIOUS):
            path = self.folder / name
            try:
                tensors, plain = read_file(path)
            except FileNotFoundError:
                continue
            except BadFile as error:
                refused.append(str(error))
                continue
            except OSError as error:
                raise self._failure("read", error) from error
            lines = differences(plain["fingerprint"], self.entries)
            if lines:
                raise ValueError(
                    f"checkpoint_dir {self.folder} holds another training; choose another folder or set back:\n  "
                    + "\n  ".join(lines)
                )
            state.restore(tensors, plain)
            self.seeds = plain["seeds"]
            self.saved_epoch = state.epoch
            self._last_is_good = name == LAST
            events += [Event("checkpoint-refused", f"{text}; {name} is used instead") for text in refused]
            return [*events, Event("resumed", f"goes on after epoch {state.epoch} from {path}")]
        if refused:
            raise ValueError(
                "no usable checkpoint: " + "; ".join(refused) + f". Delete {self.folder} to start from the beginning"
            )
        if (self.folder / BEST).exists():
            raise ValueError(
                f"checkpoint_dir {self.folder} holds {BEST} but neither {LAST} nor {PREVIOUS}, so the training cannot "
                f"go on: choose another folder, or delete {BEST} to start from the beginning"
            )
        return []

    def due(self) -> bool:
        """Whether enough work has been done since the last write."""
        return time.monotonic() - self._written >= WORK_PER_WRITE * self._cost

    def save(self, state: TrainState) -> None:
        """Write the state; nothing happens where it is already there.

        Raises OSError that says what is wrong; the checkpoint before is then untouched.
        """
        if state.epoch == self.saved_epoch:
            return
        began = time.monotonic()
        tensors, plain = state.save()
        common = {"fingerprint": self.entries, "seeds": self.seeds}
        try:
            keep_as = self.folder / PREVIOUS if self._last_is_good else None
            write_file(self.folder / LAST, tensors, plain | common, keep_as)
            self.saved_epoch, self._last_is_good = state.epoch, True
            best_epochs = _best_epochs(state)
            if state.best is not None and best_epochs != self._best_epochs:
                weights = {f"best/{name}": value for name, value in state.best.items()}
                write_file(self.folder / BEST, weights, {"epoch": state.epoch, **common})
                self._best_epochs = best_epochs
        except OSError as error:
            raise self._failure("write a checkpoint to", error) from error
        self._written = time.monotonic()
        self._cost = self._written - began

    def how_to_resume(self) -> str:
        """What to tell a user whose training stops here."""
        return (
            f"epoch {self.saved_epoch} is saved in {self.folder}; "
            f"make the same call again, with checkpoint_dir={str(self.folder)!r}, to go on from there"
        )

    def _failure(self, action: str, error: OSError) -> OSError:
        kept = "" if self.saved_epoch < 0 else f"; {self.how_to_resume()}"
        reason = error.strerror or str(error)
        return type(error)(error.errno, f"could not {action} {self.folder}: {reason}{kept}")


@torch.no_grad()
def load_weights(module: nn.Module, path: str | Path) -> None:
    """Copy the weights of a checkpoint into ``module``: the best ones of ``best.safetensors``, else those of its epoch.

    ``path`` is a file or a checkpoint folder, of which ``best.safetensors`` is taken, or ``last.safetensors`` where
    there is none. Raises ValueError where the file is damaged or does not fit the module.
    """
    file = Path(path)
    if file.is_dir():
        file = file / BEST if (file / BEST).exists() else file / LAST
    tensors, _ = read_file(file)
    group = "best/" if file.name == BEST else "module/"
    own = Stacked(module).weights
    saved = {name.removeprefix(group): value for name, value in tensors.items() if name.startswith(group)}
    found, wanted = _shapes(saved), _shapes(own)
    if found != wanted:
        raise ValueError(f"{file} does not fit the module: it holds {found}, the module has {wanted}")
    for name, value in own.items():
        value.copy_(saved[name])


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in sorted(tensors.items())}


def _best_epochs(state: TrainState) -> list[int]:
    """Changes whenever some run's best weights change."""
    finished = len(state.runs)
    return [finished, *(run.best_epoch for run in state.runs)]
