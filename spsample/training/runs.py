"""Run folders: what training leaves on disk, and where it goes on from.

::

    RUN/config.toml       the effective settings (written by the command line)
    RUN/metrics.jsonl     one line per epoch, and per some steps
    RUN/checkpoint.pt     where the run stands
    RUN/results.json      figures of merit, once it is over
    RUN/curves.png        loss and validation metric by epoch
    RUN/phases.png        seconds per phase

Runs on several splits or seeds have a folder each below ``RUN``, and a summary in it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from spsample.comm import collective
from spsample.comm.objects import broadcast_object
from spsample.errors import DataError, InputError, MissingDependencyError
from spsample.settings import Recording
from spsample.store.folder import only_recorded, system_errors, whole_file
from spsample.training.callbacks import Callback, Checkpointer, Journal, TensorBoard
from spsample.training.checkpoint import read_checkpoint
from spsample.training.plots import plot_curves, plot_phases
from spsample.training.results import TrainResult, summary
from spsample.training.trainer import Trainer

_WRITABLE, _RESUMED = "a folder that can be written to", "the run goes on from its checkpoint"


class RunFolder:
    """The folder of one run, made where it is missing.

    Parameters
    ----------
    path
        The folder.

    Examples
    --------
    >>> import tempfile
    >>> import spsample as sp
    >>> from spsample.data import planted
    >>> from spsample.training import ModelConfig, TrainConfig, Trainer
    >>> folder = RunFolder(Path(tempfile.mkdtemp()) / "run")
    >>> trainer = Trainer(planted(300), sp.GraphSAGE([5]), ModelConfig(hidden=8), TrainConfig(epochs=2))
    >>> result = folder.fit(trainer, Recording())
    >>> sorted(path.name for path in folder.path.iterdir())
    ['checkpoint.pt', 'curves.png', 'metrics.jsonl', 'phases.png', 'results.json']
    >>> folder.result() == result
    True
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.config = self.path / "config.toml"
        self._checkpoint = self.path / "checkpoint.pt"
        self._results = self.path / "results.json"
        self._curves, self._phases = self.path / "curves.png", self.path / "phases.png"

    def create(self) -> None:
        """Make a new folder, or take an empty one.

        Raises
        ------
        InputError
            If there are files in it.
        """
        if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            given, hint = f"{str(self.path)!r}, which exists", "Give another folder, or go on with that run: --resume "
            raise InputError(argument="--out", given=given, expected="a new folder", hint=f"{hint}{self.path}")
        self._make()

    def below(self, name: str) -> RunFolder:
        """Return the folder of one of several runs."""
        return RunFolder(self.path / name)

    def result(self) -> TrainResult | None:
        """Return the result of a run that is over, None of one that is not.

        Raises
        ------
        DataError
            If ``results.json`` is not what was written.
        """
        if not self._results.is_file():
            return None
        try:
            with system_errors(self._results, "results that can be read"):
                text = self._results.read_text("utf-8")
            (run,) = json.loads(text)["runs"]
            return TrainResult.from_dict(run)
        except (ValueError, KeyError, TypeError) as error:
            given = f"a file that cannot be read ({error})"
            raise DataError(argument=str(self._results), given=given, expected="the results of one run") from None

    def reached(self, ranks: int) -> str | None:
        """Return the place of the checkpoint, as "epoch 2", or of the newest of the runs below; None without one.

        Parameters
        ----------
        ranks
            Of the run, which share the batches of a step.

        Raises
        ------
        DataError
            If it is damaged.
        """
        written = [self._checkpoint] if self._checkpoint.is_file() else self.path.glob("*/checkpoint.pt")
        latest = max(written, key=lambda path: path.stat().st_mtime, default=None)
        if latest is None:
            return None
        state = read_checkpoint(latest)
        progress = state["progress"]
        is_shared = state["settings"].get("shares_batches") or state["loader"].get("batches") == "parts"
        epoch, step = progress["epoch"], progress["next_batch"] // (1 if is_shared else ranks)
        place = f"step {step} of epoch {epoch + 1}" if step else f"epoch {epoch}"
        return place if latest == self._checkpoint else f"{place} of {latest.parent.name}"

    def fit(self, trainer: Trainer, recording: Recording) -> TrainResult:
        """Train, from the checkpoint on where there is one, and write results and figures.

        On several ranks rank 0 alone reads and writes, so that the others need not see the folder.

        Raises
        ------
        DataError, InputError
            If the checkpoint is damaged, or of other settings.
        """
        writes = trainer.comm.rank == 0
        with collective(trainer.comm):
            if writes:
                self._make()
                trainer.callbacks += self._callbacks(recording)
        path = self._checkpoint
        state = broadcast_object(trainer.comm, lambda: read_checkpoint(path) if path.is_file() else None)
        if state is not None:
            with collective(trainer.comm):
                trainer.load_state_dict(state)
        result = trainer.fit()
        with collective(trainer.comm):
            if writes:
                self.finish([result])
        return result

    def finish(self, results: Sequence[TrainResult]) -> None:
        """Write results and figures of one run or of several; figures only where matplotlib is installed."""
        for plot, path in ((plot_curves, self._curves), (plot_phases, self._phases)):
            with suppress(MissingDependencyError), only_recorded(path):
                plot(results, path)
        with system_errors(self._results, _WRITABLE, _RESUMED), whole_file(self._results) as file:
            file.write((json.dumps(summary(results), indent=2) + "\n").encode())

    def _make(self) -> None:
        with system_errors(self.path, _WRITABLE):
            self.path.mkdir(parents=True, exist_ok=True)

    @property
    def contents(self) -> list[str]:
        """Names of what is in the folder, those of folders with a slash."""
        return sorted(f"{path.name}/" if path.is_dir() else path.name for path in self.path.iterdir())

    @property
    def has_figures(self) -> bool:
        """True where the figures were written: not where matplotlib is missing."""
        return self._curves.is_file() and self._phases.is_file()

    def _callbacks(self, recording: Recording) -> list[Callback]:
        callbacks: list[Callback] = [Journal(self.path / "metrics.jsonl", every_batches=recording.log_every)]
        if recording.tensorboard:
            callbacks.append(TensorBoard(self.path / "tensorboard"))
        checkpointer = Checkpointer(
            self._checkpoint,
            every_minutes=recording.checkpoint_minutes,
            every_batches=recording.checkpoint_batches,
            every_epochs=recording.checkpoint_epochs,
        )
        return [*callbacks, checkpointer]
