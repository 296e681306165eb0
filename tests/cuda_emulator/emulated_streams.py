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

    def finish(self, event):
        """The host waits for an event."""
        with self.lock:
            for number, time in event.items():
                self.waited[number] = max(self.waited[number], time)

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
    """A piece of memory: the work that last wrote it, and the streams for which it is kept once nobody has it."""

    def __init__(self, timeline, stream, what):
        self.made_on = stream.ptr
        self.what = what
        self.is_on_host = False
        self.written = (stream.ptr, stream.clock[stream.ptr])
        self._timeline = timeline
        self._kept_for = {stream.ptr}

    def keep_for(self, stream):
        self._kept_for.add(stream.ptr)

    def touch(self, stream, place, writes, where):
        """Some work of a stream reads or writes it."""
        by, time = self.written
        used = f"{where} on stream {stream.ptr} uses {self.what} of stream {self.made_on}"
        if stream.clock[by] < time:
            self._timeline.found.append(f"{used}, which it does not wait for")
        if stream.ptr not in self._kept_for:
            self._timeline.found.append(f"{used}, which may be given out anew before it has ended")
        if writes:
            self.written = (stream.ptr, place)


class Pinned:
    """Memory of the host that it writes to as it likes. Kernels read it by address: what they were last given.

    Where they are given something else before the host has waited for them, it wrote what was still to be read.
    """

    def __init__(self, timeline, host):
        self._timeline, self._host = timeline, host
        self._last = None

    def read(self, addresses, stream, place, where):
        """Some work of a stream reads rows at addresses, perhaps of this memory."""
        first = self._host.ctypes.data
        if not ((addresses >= first) & (addresses < first + self._host.nbytes)).any():
            return
        content = self._host.tobytes()
        if self._last is not None:
            number, time, before = self._last
            if content != before and self._timeline.waited[number] < time:
                self._timeline.found.append(f"{where}: the host wrote to memory that stream {number} may still read")
        self._last = stream.ptr, place, content
