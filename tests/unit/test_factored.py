"""What the factored pipeline is made of: who samples, who trains what, and what waits in between."""

from __future__ import annotations

import re
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spsample.errors import CapacityError, CommunicationError, InputError, RankError
from spsample.loading import samplers_for
from spsample.loading.factored.epoch import BatchQueue
from spsample.loading.factored.roles import AHEAD, Assignment, Assignments, Roles, StepEnd, require_roles

# ----------------------------------------------------------------------------------------------------------- roles


@given(st.integers(2, 9).flatmap(lambda p: st.tuples(st.just(p), st.integers(1, p - 1))), st.integers(0, 40))
def test_every_batch_has_one_sampler(sizes, batches):
    ranks, samplers = sizes
    roles = Roles(ranks, samplers)
    assert [rank for rank in range(ranks) if roles.samples(rank)] == list(range(ranks - samplers, ranks))
    assert not roles.samples(0)
    assert roles.trainers + samplers == ranks
    assert roles.samples(roles.coordinator)
    shares = list(roles.shares(3, 3 + batches, 4))
    assert [batch for _, begin, end in shares for batch in range(begin, end)] == list(range(3, 3 + batches))
    assert [sampler for sampler, *_ in shares] == [ranks - samplers + i % samplers for i in range(len(shares))]
    assert all(end - begin <= 4 for _, begin, end in shares)


@given(st.integers(2, 64), st.floats(1e-6, 1e3), st.floats(1e-6, 1e3))
def test_the_published_number_of_samplers(ranks, sampling, training):
    """As many as keep up with the trainers, with one rank left to train."""
    count = samplers_for(ranks, sampling, training)
    assert 1 <= count.samplers <= ranks - 1
    assert count.samplers == min(max(int(np.ceil(ranks / (training / sampling + 1))), 1), ranks - 1)
    assert count.reason.startswith(f"{count.samplers} of {ranks} ranks sample")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((1, 1.0, 1.0), "ranks: got 1"),
        ((2.5, 1.0, 1.0), "ranks: got 2.5"),
        ((2, 0.0, 1.0), "sampling_seconds: got 0.0"),
        ((2, 1.0, -1.0), "training_seconds: got -1.0"),
        ((2, float("nan"), 1.0), "sampling_seconds: got nan"),
        ((2, 1.0, "long"), "training_seconds: got 'long'"),
    ],
)
def test_what_no_number_of_samplers_is_for(given, said):
    with pytest.raises(InputError, match=re.escape(said)):
        samplers_for(*given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((1, 1), "pipeline: got 'factored' on 1 rank; expected at least 2 ranks"),
        ((3, 3), "sampler_ranks: got 3 of 3 ranks; expected at most 2: one rank has to train"),
        ((3, 0), "sampler_ranks: got 0"),
        ((3, "one"), "sampler_ranks: got 'one'"),
    ],
)
def test_roles_that_cannot_be(given, said):
    with pytest.raises(InputError, match=re.escape(said)):
        require_roles(*given)


def test_errors_say_who_does_what_once():
    roles = Roles(4, 2)
    assert str(roles) == "ranks 2 to 3 sample, ranks 0 to 1 train"
    for error in (CommunicationError("rank 3 is gone"), RankError(3, "OSError: no disk")):
        said = str(error)
        for _ in range(2):
            roles.explain(error)
            assert str(error) == f"{said} (ranks 2 to 3 sample, ranks 0 to 1 train)"


# ----------------------------------------------------------------------------------------------------------- queue


@settings(max_examples=40)
@given(st.data())
def test_a_queue_is_bounded_and_sends_each_batch_once(data):
    """Batches are given out in order, as assignments are; a sampler that outruns them waits."""
    sizes = data.draw(st.lists(st.integers(0, 30), min_size=1, max_size=25))
    most = data.draw(st.integers(max(sizes), 80))
    ranks = [data.draw(st.integers(0, 3)) for _ in sizes]  # a draw may raise: no thread runs yet
    sent, over = [], []
    queue = BatchQueue(most, lambda rank, batch, packed: sent.append((rank, batch, len(packed))))

    def put():
        for batch, size in enumerate(sizes):
            assert queue.put(batch, np.zeros(size, np.uint8))
        over.append(True)

    thread = threading.Thread(target=put)
    thread.start()
    for batch, rank in enumerate(ranks):
        queue.give(batch, rank)
        assert 0 <= queue.nbytes <= most
    thread.join(20)
    assert over
    assert sorted(sent, key=lambda one: one[1]) == [
        (rank, batch, size) for batch, (rank, size) in enumerate(zip(ranks, sizes, strict=True))
    ]
    assert queue.nbytes == 0
    assert queue.peak <= most


def test_a_queue_that_is_closed_lets_nobody_wait():
    queue, told = BatchQueue(10, lambda *_: None), []
    assert queue.put(0, np.zeros(10, np.uint8))
    threads = [threading.Thread(target=lambda b=b: told.append(queue.put(b, np.zeros(5, np.uint8)))) for b in (1, 2)]
    for thread in threads:
        thread.start()
    threads[0].join(0.05)
    assert threads[0].is_alive()
    queue.close()
    for thread in threads:
        thread.join(10)
    assert told == [False, False]
    assert queue.put(3, np.zeros(1, np.uint8)) is False


def test_a_batch_that_no_queue_could_hold():
    queue = BatchQueue(10, lambda *_: None)
    with pytest.raises(CapacityError, match=r"queue_memory: got 10 bytes; expected room for batch 4: 11 bytes"):
        queue.put(4, np.zeros(11, np.uint8))


# --------------------------------------------------------------------------------------------------------- assignments


class Run:
    """Ranks that ask for assignments, train, and stand by, in any order; what is given out is checked at once."""

    def __init__(self, first, batches, per_step, trainers, samplers=0):
        self.assignments = Assignments(first, batches, per_step, trainers)
        self.first, self.batches, self.per_step, self.trainers = first, batches, per_step, trainers
        self.held = {rank: [] for rank in range(trainers + samplers)}
        self.asked = dict.fromkeys(self.held, 0)
        self.given, self.ended, self.times = [], [], {}
        self.standby = set()

    def ask(self, rank):
        self.asked[rank] += 1
        self._take(self.assignments.ask(rank))

    def train(self, rank, seconds=1.0):
        self.held[rank].pop(0)
        self.asked[rank] += 1
        self.times[rank] = 0.5 * (self.times.get(rank, seconds) + seconds)
        self._take(self.assignments.trained(rank, seconds))

    def stand_by(self, rank):
        self.standby.add(rank)
        self.assignments.stand_by(rank)

    def _take(self, events):
        for event in events:
            if isinstance(event, StepEnd):
                end = min((event.step + 1) * self.per_step, self.batches)
                assert self.given[-1] + 1 == end
                self.ended.append(event.step)
                continue
            assert isinstance(event, Assignment)
            assert event.batch == (self.given[-1] + 1 if self.given else self.first)
            if event.rank in self.standby:
                self._pays(event)
            self.given.append(event.batch)
            self.held[event.rank].append(event.batch)
            self.asked[event.rank] -= 1
            assert self.asked[event.rank] >= 0
            assert len(self.held[event.rank]) <= AHEAD

    def _pays(self, event):
        """The published condition: M_r T_t / N_t > T_t'."""
        known = [seconds for rank, seconds in self.times.items() if rank not in self.standby]
        usual = np.mean(known)
        left = self.batches - event.batch
        assert left * usual / self.trainers > self.times.get(event.rank, usual)

    def end(self):
        assert self.given == list(range(self.first, self.batches))
        steps = range(self.first // self.per_step, -(-self.batches // self.per_step))
        assert self.ended == list(steps if self.given else [])


@settings(max_examples=150)
@given(st.data())
def test_tickets_whatever_the_order(data):
    """Trainers alone bring an epoch to its end, whatever samplers that stand by do."""
    per_step = data.draw(st.integers(1, 9))
    batches = data.draw(st.integers(0, 40))
    first = per_step * data.draw(st.integers(0, batches // per_step))
    trainers, samplers = data.draw(st.integers(1, 4)), data.draw(st.integers(0, 2))
    run = Run(first, batches, per_step, trainers, samplers)
    asks = [rank for rank in range(trainers) for _ in range(AHEAD)]
    for rank in data.draw(st.permutations(asks)):
        run.ask(rank)
    pending = list(range(trainers, trainers + samplers))
    while any(run.held.values()):
        able = [rank for rank, held in run.held.items() if held]
        chosen = data.draw(st.sampled_from([*able, *pending]))
        if chosen in pending:
            pending.remove(chosen)
            run.stand_by(chosen)
            for _ in range(AHEAD):
                run.ask(chosen)
        else:
            run.train(chosen, data.draw(st.floats(1e-3, 10.0)))
        if run.assignments._next < run.assignments._end:  # no trainer is idle while there is a batch
            assert all(run.held[rank] for rank in range(trainers))
    run.end()


@pytest.mark.parametrize("trainers", [1, 2, 3, 5])
def test_ranks_of_the_same_speed_train_a_batch_of_each_step(trainers):
    run = Run(0, 6 * trainers, trainers, trainers)
    for rank in range(trainers):
        for _ in range(AHEAD):
            run.ask(rank)
    for step in range(6):
        assert sorted(held[0] for held in run.held.values()) == list(range(step * trainers, (step + 1) * trainers))
        for rank in range(trainers):
            run.train(rank)
    run.end()


def test_who_is_free_trains_more():
    """A rank that is ten times slower has one batch, the other one the rest of the step."""
    run = Run(0, 8, 8, 2)
    for _ in range(AHEAD):
        run.ask(0)
        run.ask(1)
    slow = list(run.held[0])
    done = 0
    while run.held[1]:
        run.train(1)
        done += 1
    assert done >= 6
    assert run.held[0] == slow


def test_a_sampler_stands_by_until_it_pays():
    run = Run(0, 10, 1, 2, samplers=1)
    run.stand_by(2)
    for rank in (2, 2, 0, 1, 0, 1):
        run.ask(rank)
    assert run.held[2] == []  # nobody knows how long a batch takes
    run.train(0, 1.0)
    assert run.held[2] != []  # 5 left, of 1 s on 2 ranks
    run.train(2, 100.0)
    assert len(run.held[2]) <= 1
    while any(run.held.values()):
        for rank in (0, 1, 2):
            if run.held[rank]:
                run.train(rank, 100.0 if rank == 2 else 1.0)
    run.end()
