"""The order of work on several streams of an emulated device: what is read, or given away, too early is found.

Everything is done at once; what is kept is what a GPU would be free to reorder. A clock says for each stream how much
of its work is known to be done before.
"""

from __future__ import annotations

import threading
from collections import defaultdict

DEFAULT = 1


class Timeline:
    """The streams of a device, what the host has waited for, and what was `found`."""

    def __init__(self):
        self.lock = threading.RLock()
        self.waited = defaultdict(int)
        self.found = []
        self._streams = {}
        self._here = threading.local()

    def stream(self, number):
        with self.lock:
            return self._streams.setdefault(number, EmulatedStream(self, number))

    @property
    def callers(self):
        """The number of the stream that this thread is on."""
        return getattr(self._here, "number", DEFAULT)

    @callers.setter
    def callers(self, number):
        self._here.number = number

    def check(self):
        """Raises what was found since the last time."""
        with self.lock:
            found, self.found = self.found, []
        assert not found, "\n".join(found)


class EmulatedStream:
    """A stream; an event is a copy of its clock."""

    def __init__(self, timeline, ptr):
        self.ptr = ptr
        self.clock = defaultdict(int)
        self._timeline = timeline

    def record(self):
        with self._timeline.lock:
            self._learn(self._timeline.waited)
            return dict(self.clock)

    def wait_event(self, event):
        with self._timeline.lock:
            self._learn(event)

    def synchronize(self):
        with self._timeline.lock:
            for number, time in self.clock.items():
                self._timeline.waited[number] = max(self._timeline.waited[number], time)

    def work(self):
        """One more piece of work. Returns its place on the clock."""
        self._learn(self._timeline.waited)
        self.clock[self.ptr] += 1
        return self.clock[self.ptr]

    def _learn(self, clock):
        for number, time in clock.items():
            self.clock[number] = max(self.clock[number], time)


class Memory:
    """A piece of memory: the work that last wrote it, and the last work of each stream that used it."""

    def __init__(self, timeline, stream, what):
        self.made_on = stream.ptr
        self.what = what
        self._timeline = timeline
        self._written = (stream.ptr, stream.clock[stream.ptr])
        self._used = {}
        self._kept_for = set()

    def keep_for(self, stream):
        self._kept_for.add(stream.ptr)

    def touch(self, stream, place, writes, where):
        """Some work of a stream reads or writes it."""
        by, time = self._written
        if stream.clock[by] < time:
            self._timeline.found.append(
                f"{where} on stream {stream.ptr} uses {self.what} of stream {self.made_on}, which waits for nothing"
            )
        self._used[stream.ptr] = place
        if writes:
            self._written = (stream.ptr, place)

    def __del__(self):
        for number, place in self._used.items():
            is_done = self._timeline.waited[number] >= place
            if number != self.made_on and number not in self._kept_for and not is_done:
                self._timeline.found.append(
                    f"{self.what} of stream {self.made_on} is given away while stream {number} may still use it"
                )
