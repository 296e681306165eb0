"""Progress of a training run: the epoch under way, the epochs that are over, the best weights, patience."""

from __future__ import annotations

import copy
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from torch import Tensor, nn

from spsample.training.results import EpochRecord


@dataclass
class Best:
    """The weights that were best on the validation vertices, and how many evaluations ago that was."""

    epoch: int = -1
    val: float = float("-inf")
    weights: dict[str, Tensor] = field(default_factory=dict)
    age: int = 0

    def is_older_than(self, patience: int | None) -> bool:
        """Return whether patience has run out."""
        return patience is not None and self.age >= patience


@dataclass
class Progress:
    """Counts and sums of a run.

    Attributes
    ----------
    epoch
        The epoch under way, from 0.
    step
        Optimisation steps so far, in all epochs.
    next_batch
        Of the epoch under way: batches of all ranks that are trained on.
    loss_sum, num_seeds
        Of the epoch under way: the losses' sum over its seeds so far, and their number.
    history
        The epochs that are over.
    best
        The best weights so far.
    before_last
        `best` before an evaluation that was not in turn, but of the last epoch; None where there was none.
    """

    epoch: int = 0
    step: int = 0
    next_batch: int = 0
    loss_sum: float = 0.0
    num_seeds: int = 0
    history: list[EpochRecord] = field(default_factory=list)
    best: Best = field(default_factory=Best)
    before_last: Best | None = None

    def add_step(self, loss: float, num_seeds: int, num_batches: int = 1) -> None:
        """Take note of a step, with a batch on each rank."""
        self.step += 1
        self.next_batch += num_batches
        self.loss_sum += loss * num_seeds
        self.num_seeds += num_seeds

    def consider(self, epoch: int, val: float, model: nn.Module, *, in_turn: bool) -> None:
        """Keep the model's weights if ``val`` is better than ever."""
        self.before_last = None if in_turn else self.best
        if val > self.best.val:
            self.best = Best(epoch, val, copy.deepcopy(model.state_dict()))
        else:
            self.best = replace(self.best, age=self.best.age + 1)

    def reopen(self) -> None:
        """Forget that the last epoch was evaluated because it was the last one."""
        if self.before_last is not None:
            self.best, self.before_last = self.before_last, None
            self.history[-1] = replace(self.history[-1], val=None)

    def close_epoch(self, record: EpochRecord) -> None:
        """Take note of an epoch that is over, and begin the next one."""
        self.history.append(record)
        self.epoch += 1
        self.next_batch = 0
        self.loss_sum, self.num_seeds = 0.0, 0

    def state_dict(self) -> dict[str, Any]:
        """Return everything, as plain values and tensors: the best weights themselves, not copies."""
        before = None if self.before_last is None else dict(vars(self.before_last))
        history = [asdict(record) for record in self.history]
        return {**vars(self), "history": history, "best": dict(vars(self.best)), "before_last": before}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Progress:
        """Return the progress that `state_dict` was taken of."""
        history = [EpochRecord(**record) for record in state["history"]]
        before = None if state.get("before_last") is None else Best(**state["before_last"])
        return cls(**{**state, "history": history, "best": Best(**state["best"]), "before_last": before})
