"""What a session may count on of a GPU's memory, and how often the driver is asked."""

from __future__ import annotations

import threading

import pytest

from spsample.backends.cuda.free_memory import FreeMemory


class Driver:
    def __init__(self, free):
        self.free, self.asked = free, 0

    def __call__(self):
        self.asked += 1
        return self.free


def test_the_driver_is_asked_once_until_half_is_taken():
    driver = Driver(1000)
    memory = FreeMemory(driver)
    assert memory.bytes() == 1000
    memory.took(499)
    assert (memory.bytes(), driver.asked) == (501, 1)
    driver.free = 700  # something was given back
    memory.took(1)
    assert (memory.bytes(), driver.asked) == (700, 2)


@pytest.mark.parametrize("before", [0, 5, 1 << 40])
def test_a_session_asks_anew(before):
    driver = Driver(1000)
    memory = FreeMemory(driver)
    memory.took(before)
    assert memory.bytes() == 1000
    memory.took(10)
    driver.free = 600
    memory.forget()
    assert (memory.bytes(), driver.asked) == (600, 2)


def test_no_memory_left():
    driver = Driver(0)
    memory = FreeMemory(driver)
    assert memory.bytes() == memory.bytes() == 0
    assert driver.asked == 2


def test_threads_have_their_own_sessions():
    driver = Driver(1000)
    memory = FreeMemory(driver)
    assert memory.bytes() == 1000
    memory.took(100)
    seen = []
    thread = threading.Thread(target=lambda: seen.append(memory.bytes()))
    thread.start()
    thread.join()
    assert (seen, memory.bytes(), driver.asked) == ([1000], 900, 2)
