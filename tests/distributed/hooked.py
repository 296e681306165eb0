"""`Hooked`: a communicator that calls a function before each of its calls, to make them fail or end the process."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from contextlib import contextmanager

from spsample.comm import Communicator


class Hooked(Communicator):
    """Calls `hook(method, phase)`, then another communicator; so do those that are split off."""

    def __init__(self, comm, hook):
        self._comm = comm
        self._call = ""
        self._hook = hook
        self.name, self.rank, self.size, self.timeout = comm.name, comm.rank, comm.size, comm.timeout
        self.world = comm.world

    def all_to_all(self, send, *, phase="other"):
        if not self._call.startswith(("the end of", "comparison of")):
            self._hook("all_to_all", phase)
        return self._comm.all_to_all(send, phase=phase)

    def all_to_all_v(self, send, send_counts, recv_counts, *, phase="other"):
        self._hook("all_to_all_v", phase)
        return self._comm.all_to_all_v(send, send_counts, recv_counts, phase=phase)

    def all_gather(self, send, *, phase="other"):
        self._hook("all_gather", phase)
        return self._comm.all_gather(send, phase=phase)

    def all_gather_v(self, send, recv_counts, *, phase="other"):
        self._hook("all_gather_v", phase)
        return self._comm.all_gather_v(send, recv_counts, phase=phase)

    def all_reduce(self, send, op="sum", *, phase="other"):
        self._hook("all_reduce", phase)
        return self._comm.all_reduce(send, op, phase=phase)

    def broadcast(self, array, root=0, *, phase="other"):
        self._hook("broadcast", phase)
        return self._comm.broadcast(array, root, phase=phase)

    def split(self, color, key=None):
        return Hooked(self._comm.split(color, key), self._hook)

    def duplicate(self):
        return Hooked(self._comm.duplicate(), self._hook)

    @contextmanager
    def agreed(self, call):
        before, self._call = self._call, call
        with self._comm.agreed(call):
            yield
        self._call = before

    def close(self):
        self._comm.close()

    def abort(self, message):
        self._comm.abort(message)


class Fault:
    """A hook that raises once: where a rank begins its n-th exchange.

    An exchange begins with a header, which is an all_to_all of phase "status", as are comparisons of arguments and the
    ends of calls, of which the hook is not told: what goes wrong before it goes wrong in
    the computation that makes what is sent. `phases` tells of each exchange what it moves, or "nothing".
    """

    def __init__(self):
        self.phases = []
        self.wanted = 0

    def __call__(self, method, phase):
        if phase != "status":
            self.phases[-1:] = [phase] if self.phases else []
        elif method == "all_to_all":
            self.phases.append("nothing")
            if len(self.phases) == self.wanted:
                self.wanted = 0
                raise ArithmeticError(f"kernel {len(self.phases)}")

    def in_exchange(self, number):
        """Raise in an exchange from now on: 1 is the next one."""
        self.phases = []
        self.wanted = number


class Calls:
    """A hook that counts a rank's calls by phase and kills it (SIGKILL) at one of them."""

    def __init__(self, wanted):
        self.counts = Counter()
        self.wanted = wanted

    def __call__(self, method, phase):
        self.counts[phase] += 1
        if (phase, self.counts[phase]) == self.wanted:
            os.write(2, f"the end at {time.time()}\n".encode())
            os.kill(os.getpid(), signal.SIGKILL)


class Counted(Hooked):
    """Knows which communicators were made of it and not closed."""

    def __init__(self, comm, made=None):
        super().__init__(comm, lambda method, phase: None)
        self.made = set() if made is None else made

    def split(self, color, key=None):
        part = Counted(self._comm.split(color, key), self.made)
        self.made.add(part)
        return part

    def duplicate(self):
        return self.split(0)

    def close(self):
        self.made.discard(self)
        super().close()
