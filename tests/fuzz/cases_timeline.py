"""Seconds by phase, timelines, their files and pictures."""

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
    made.close()
    json.loads(made.path.read_text())


def fuzz_picture(make, folder):
    path = folder / "t.json"
    with timeline.Timeline(path) as made:
        spans(make, made)
    if make.chance(0.3):
        trace = json.loads(path.read_text())
        for event in trace["traceEvents"]:
            event[make.choice([*event])] = make.choice([None, -1, "x", [], 10**400, 0.5, {}])
        path.write_text(json.dumps(trace))
    steps = make.either(lambda: make.choice([None, (0, 0), (0, 1), [1, 0], (1,)]), 0.2)
    timeline.plot_timeline(make.either(lambda: path, 0.1), make.either(lambda: folder / "t.svg", 0.1), steps=steps)


CASES = {
    "timeline": Case(fuzz_timeline, (timeline.Timeline, timeline.Phases, timeline.stage_times)),
    "timeline picture": Case(fuzz_picture, (timeline.plot_timeline,)),
}
