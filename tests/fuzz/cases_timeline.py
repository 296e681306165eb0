"""Seconds by phase, timelines, their files."""

from __future__ import annotations

import json

from case import Case

from spsample import timeline
from spsample.comm import LocalCommunicator

NAMES = ["sampling", "training", "sampling waiting for room", "", "é"]


def spans(make, made):
    for _ in range(make.integer(0, 4)):
        name, batch = (
            make.either(lambda: make.choice(NAMES), 0.05),
            make.either(lambda: make.choice([None, 0, 7]), 0.05),
        )
        category = make.either(lambda: make.choice(["phase", "part"]), 0.05)
        with made.span(name, batch, category=category):
            pass
        times = make.either(lambda: 0.5, 0.05), make.either(lambda: 0.75, 0.05)
        made.add(name, *times, batch, category=category)


def fuzz_timeline(make, folder):
    path = make.either(lambda: folder / make.choice(["t.json", "none/t.json", ".", "u"]))
    comm = make.either(lambda: make.choice([None, LocalCommunicator()]), 0.1)
    with timeline.Timeline(path, comm) as made:
        spans(make, made)
        counted = timeline.Phases(make.either(lambda: ["sampling"], 0.1), make.either(lambda: made, 0.1))
        with counted.timed(make.either(lambda: "sampling", 0.1)), counted.part("collate"):
            pass
        list(counted.over("reading", iter([1, 2])))
        timeline.stage_times(make.either(lambda: counted.seconds, 0.2))
        timeline.work_seconds({**counted.seconds, timeline.waiting_for("room", "sampling"): 1.0})
    made.close()
    json.loads(made.path.read_text())


FACE = (timeline.Timeline, timeline.Phases, timeline.stage_times, timeline.waiting_for, timeline.work_seconds)
CASES = {"timeline": Case(fuzz_timeline, FACE)}
