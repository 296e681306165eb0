"""One model on several ranks: its first weights, and the gradients of a step, averaged by the number of seeds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from spsample.comm import Channel, Communicator, Recorder, Sent, collective
from spsample.comm.buffers import reduce_in_order
from spsample.comm.recorder import Counts
from spsample.common.checks import require_type
from spsample.errors import InputError

Model = TypeVar("Model", bound=torch.nn.Module)


def first_ranks_model(comm: Communicator, build: Callable[[], Model]) -> Model:
    """Return a model that every rank builds, with the weights that rank 0's got; collective.

    Rank 0 builds first and alone: where ranks are threads they share torch's generator.
    """
    if comm.size == 1:
        return build()
    with collective(comm):
        model = build() if comm.rank == 0 else None
    with collective(comm):
        built = build() if model is None else model
    broadcast_weights(comm, built, "set-up")
    return built


def broadcast_weights(comm: Communicator, model: torch.nn.Module, phase: str) -> None:
    """Let a model have the weights of rank 0's; collective."""
    for tensor in model.state_dict().values():
        array = tensor.detach().cpu().numpy()
        tensor.copy_(torch.from_numpy(comm.broadcast(array, phase=phase)))


class StepLoss(NamedTuple):
    """Mean loss over the seeds of all ranks' batches, and their number.

    Examples
    --------
    >>> StepLoss(0.5, 256).mean
    0.5
    """

    mean: float
    num_seeds: int


class Gradients(Protocol):
    """From each rank's loss to gradients that are the same on all: the mean over the seeds of all batches.

    Attributes
    ----------
    model
        What to call for a step.
    """

    model: Any

    def prepare(self, loss: torch.Tensor, share: float = 1.0) -> None:
        """Do what follows the forward pass.

        ``share`` is the part of the step's seeds that ``loss`` is the mean of, where ranks share a batch.
        """
        ...

    def finish(self, loss: torch.Tensor, num_seeds: int) -> StepLoss:
        """Put the gradients of all ranks together; collective."""
        ...


class LocalGradients:
    """Gradients on one rank."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model: Any = model

    def prepare(self, loss: torch.Tensor, share: float = 1.0) -> None:
        """Backward."""
        loss.backward()  # type: ignore[no-untyped-call]

    def finish(self, loss: torch.Tensor, num_seeds: int) -> StepLoss:
        """The loss, as it is."""
        return StepLoss(loss.item(), num_seeds)


class CommunicatorGradients(LocalGradients):
    """By one sum over the ranks per step, of a flat buffer: gradients times seeds, loss times seeds, seeds.

    Summed in the order of the ranks: the same bits in every step, over every communicator, fresh or resumed.

    Parameters
    ----------
    model
        The same on every rank.
    comm
        Used by the thread that trains alone. Phase "gradients".
    """

    def __init__(self, model: torch.nn.Module, comm: Communicator) -> None:
        _check(model, comm)
        super().__init__(model)
        self._comm = comm
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]

    def finish(self, loss: torch.Tensor, num_seeds: int) -> StepLoss:
        """Sum over the ranks, and divide by all seeds."""
        return self._mean(self._comm.all_reduce(self._weighted(loss, num_seeds), phase="gradients"))

    def _weighted(self, loss: torch.Tensor, num_seeds: int) -> NDArray[np.float32]:
        """Gradients times seeds, loss times seeds, seeds."""
        gradients = (_gradient(parameter).numpy() for parameter in self._parameters)
        mine = [gradient.astype(np.float32, copy=False).reshape(-1) for gradient in gradients]
        mine.append(np.array([loss.item() if num_seeds else 0.0, 1.0], np.float32))
        flat = np.concatenate(mine)
        flat *= np.float32(num_seeds)
        return flat

    def _mean(self, total: NDArray[np.float32]) -> StepLoss:
        """Let the parameters have the mean of a sum of `_weighted`."""
        seeds = float(total[-1])
        total /= np.float32(max(seeds, 1.0))
        self._take(total)
        return StepLoss(float(total[-2]), int(seeds))

    def _take(self, flat: NDArray[Any]) -> None:
        """Let the parameters have the gradients that come one after the other in an array."""
        first = 0
        for parameter in self._parameters:
            gradient = flat[first : first + parameter.numel()].reshape(tuple(parameter.shape))
            parameter.grad = torch.from_numpy(gradient.copy()).to(parameter)
            first += parameter.numel()


class CooperativeGradients(CommunicatorGradients):
    """Gradients of the mean loss over the seeds of one minibatch, of which each rank has computed some rows.

    Each rank has a part of every row's gradient; they are summed in the order of the ranks.

    Parameters
    ----------
    model
        The same on every rank.
    comm
        Used by the thread that trains alone. Phase "gradients".
    """

    def prepare(self, loss: torch.Tensor, share: float = 1.0) -> None:
        """Backward, all ranks together; ``share`` is the part of the batch's seeds that ``loss`` is the mean of."""
        (loss * share).backward()  # type: ignore[no-untyped-call]

    def finish(self, loss: torch.Tensor, num_seeds: int) -> StepLoss:
        """Sum the gradients and the losses."""
        total_loss = self._comm.all_reduce(np.array([loss.item() * num_seeds, num_seeds]), phase="gradients")
        if self._comm.size > 1:
            mine = [_gradient(parameter).reshape(-1) for parameter in self._parameters]
            self._take(self._comm.all_reduce(torch.cat(mine).numpy(), phase="gradients"))
        loss_sum, seeds = total_loss.tolist()
        return StepLoss(loss_sum / max(seeds, 1.0), int(seeds))


class FactoredGradients(CommunicatorGradients):
    """The mean over the seeds of a list of batches, whichever rank has trained which of them.

    Each rank adds up a p-th of the parameters, batch by batch, and gets the other sums: so the bits are those of as
    many ranks with a batch each, and do not depend on who trained what. A rank may have trained none.

    After `finish_step` the parameters have the mean. Let them have no gradients (`zero_grad`) before going back through
    the next batch, which adds to those that there are.

    Parameters
    ----------
    model
        The same on every rank.
    comm
        Used by the thread that trains alone. Phase "gradients".

    Examples
    --------
    >>> import torch
    >>> from spsample.comm import LocalCommunicator
    >>> model = torch.nn.Linear(2, 1)
    >>> gradients = FactoredGradients(model, LocalCommunicator())
    >>> for batch_id, seeds in ((4, 3), (5, 2)):
    ...     loss = gradients.model(torch.ones(seeds, 2)).mean()
    ...     gradients.prepare(loss)
    ...     gradients.keep(batch_id, loss, seeds)
    >>> gradients.finish_step().num_seeds
    5
    """

    def __init__(self, model: torch.nn.Module, comm: Communicator) -> None:
        super().__init__(model, comm)
        self._kept: dict[int, NDArray[np.float32]] = {}

    def keep(self, batch_id: int, loss: torch.Tensor, num_seeds: int) -> None:
        """Keep the gradients of a batch, after `prepare`, and let the parameters have none."""
        self._kept[batch_id] = self._weighted(loss, num_seeds)
        for parameter in self._parameters:
            parameter.grad = None

    def drop(self) -> None:
        """Forget what was kept."""
        self._kept.clear()

    def finish_step(self) -> StepLoss:
        """Sum over all batches that ranks have kept, and divide by all seeds; collective."""
        size = self._comm.size
        ids = np.array(sorted(self._kept), np.int64)
        length = sum(parameter.numel() for parameter in self._parameters) + 2
        share = -(-length // size)
        kept = np.zeros((len(ids), size * share), np.float32)
        for row, batch_id in zip(kept, ids.tolist(), strict=True):
            row[:length] = self._kept[batch_id]
        self._kept.clear()
        rows = kept.reshape(len(ids), size, share).swapaxes(0, 1)
        counts = np.full(size, len(ids))
        sends = [Sent(np.tile(ids, size), counts), Sent(rows.reshape(-1, share), counts)]
        all_ids, all_rows = (received.rows for received in Channel(self._comm).exchange(sends, phase="gradients"))
        in_order = all_rows[np.argsort(all_ids)]
        mine = reduce_in_order(in_order, "sum") if len(in_order) else np.zeros(share, np.float32)
        total = self._comm.all_gather(mine, phase="gradients").reshape(-1)[:length]
        return self._mean(total)


class DistributedGradients:
    """By torch's DistributedDataParallel, which sums on the GPUs while it goes back through the layers.

    The order in which NCCL adds up a number depends on its place in DDP's buckets. DDP makes these anew after the first
    step, unless it looks for unused parameters: then a run that is resumed would add in another order than one that is
    not. So it is made to look for them, and finds one.

    The seeds of all ranks are summed before, since the mean that DDP takes has to be weighted. What DDP sends is added
    to the phase "gradients" of a `spsample.comm.Recorder`, as one sum over all parameters.

    Parameters
    ----------
    model
        The same on every rank.
    comm
        The ranks of torch's default process group.
    """

    def __init__(self, model: torch.nn.Module, comm: Communicator) -> None:
        self.model: Any = torch.nn.parallel.DistributedDataParallel(_OneUnused(model), find_unused_parameters=True)
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._comm = comm

    def prepare(self, loss: torch.Tensor, share: float = 1.0) -> None:
        """Nothing: going back is collective."""

    def finish(self, loss: torch.Tensor, num_seeds: int) -> StepLoss:
        """Backward, with the rank's share of the seeds as weight."""
        mine = np.array([loss.item() * num_seeds if num_seeds else 0.0, num_seeds])
        total_loss, seeds = self._comm.all_reduce(mine, phase="gradients").tolist()
        weight = self._comm.size * num_seeds / max(seeds, 1.0)
        (loss * weight).backward()
        if isinstance(self._comm, Recorder):  # DDP's own sum passes it by: counted as a ring's
            steps = 2 * (self._comm.size - 1)
            nbytes = steps * sum(p.numel() * p.element_size() for p in self._parameters) // self._comm.size
            self._comm.traffic.add("gradients", Counts(1, steps, steps, nbytes, nbytes))
        return StepLoss(total_loss / max(seeds, 1.0), int(seeds))


class _OneUnused(torch.nn.Module):
    """A model and a parameter that it does not use: DDP warns on every rank where it looks for some and finds none."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model
        self.unused = torch.nn.Parameter(torch.zeros(1, device=next(model.parameters()).device))

    def forward(self, *arguments: Any) -> Any:
        return self.model(*arguments)


def gradients_for(model: torch.nn.Module, comm: Communicator) -> Gradients:
    """Return how gradients are averaged: by DDP over NCCL, where they stay on the GPUs; else by the communicator.

    Parameters
    ----------
    model
        The same on every rank.
    comm
        The ranks that train it, each with batches of its own.

    Raises
    ------
    DTypeError
        If these are no model and no communicator.
    InputError
        If the communicator is of NCCL, and torch.distributed runs on other ranks.

    Examples
    --------
    >>> from spsample.comm import LocalCommunicator
    >>> model = torch.nn.Linear(2, 1)
    >>> gradients = gradients_for(model, LocalCommunicator())
    >>> loss = gradients.model(torch.ones(3, 2)).mean()  # over this rank's three seeds
    >>> gradients.prepare(loss)
    >>> gradients.finish(loss, num_seeds=3).num_seeds
    3
    """
    _check(model, comm)
    if comm.size == 1:
        return LocalGradients(model)
    if comm.name != "nccl":
        return CommunicatorGradients(model, comm)
    distributed = torch.distributed
    theirs = distributed.get_rank(), distributed.get_world_size()
    if theirs != (comm.rank, comm.size):
        given = f"rank {comm.rank} of {comm.size}, which is rank {theirs[0]} of {theirs[1]} to torch.distributed"
        raise InputError(argument="graph", given=given, expected="the same ranks")
    return DistributedGradients(model, comm)


def _check(model: torch.nn.Module, comm: Communicator) -> None:
    require_type("model", model, torch.nn.Module, "a torch.nn.Module")
    require_type("comm", comm, Communicator, "a communicator, as spsample.init() makes")


def _gradient(parameter: torch.nn.Parameter) -> torch.Tensor:
    """Return a gradient of the parameter's own dtype: float64 models add up float64."""
    return (torch.zeros_like(parameter) if parameter.grad is None else parameter.grad).detach().cpu()
