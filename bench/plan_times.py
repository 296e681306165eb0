"""Times that a plan predicts beside those of `rank_times.py`: `python bench/plan_times.py FOLDER TIMES LINKS RESULT`.

TIMES has lines of `rank_times.py`, LINKS those of `link_probe.py` for the same links. The computation is measured here.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Annotated, Any

import typer

from json_lines import append, read
from spsample.planning.cluster.computation import Trials, moved_bytes
from spsample.planning.cluster.grid_shape import GridShape
from spsample.planning.cluster.network import Link, Network
from spsample.planning.cluster.pilot import sample_pilot
from spsample.planning.cluster.traffic import bulk_traffic
from spsample.planning.cluster.wire_widths import WireWidths
from traffic_cells import SAMPLERS, load, seeds_of

MOST_BATCHES = 96


def main(
    folder: Annotated[Path, typer.Argument(help="Of indptr.npy and indices.npy.")],
    times: Annotated[Path, typer.Argument(help="JSON lines of `rank_times.py`.", exists=True)],
    links: Annotated[Path, typer.Argument(help="JSON lines of `link_probe.py`.", exists=True)],
    result: Annotated[Path, typer.Argument(help="JSON lines, to which each algorithm of a sampler adds.")],
    ranks: Annotated[int, typer.Option(help="p")] = 4,
    cores_per_rank: Annotated[float, typer.Option(help="A fraction where ranks share cores.")] = 0.5,
) -> None:
    """A line for each that was measured and is planned for, with the ratio of the two times."""
    graph = load(folder)
    probed = read(links)
    networks = {
        link: network_of([one for one in probed if one["link"] == link]) for link in {x["link"] for x in probed}
    }
    measured = [one for one in read(times) if one["kind"] == "time" and one["algorithm"] != "auto"]
    for name, (sampler, b) in SAMPLERS.items():
        pilot = sample_pilot(graph, seeds_of(graph, MOST_BATCHES * b), sampler, batch_size=b)
        profile = pilot.profile
        wire = WireWidths.of(profile.id_bytes, profile.weight_bytes, profile.weighting, edge_ids=False)
        here = [one for one in measured if one["sampler"] == name and one["link"] in networks]
        for c, algorithm in sorted({(one["replication"], one["algorithm"]) for one in here}):
            shape, law = GridShape(ranks, c), sampler.draw_law(profile.weighting)
            computation = Trials(pilot, algorithm, wire)(shape)
            for one in here:
                if (one["replication"], one["algorithm"]) != (c, algorithm):
                    continue
                traffic = bulk_traffic(pilot.counts(shape, one["batches"]), sampler, law, wire, algorithm)
                batches, moved = one["batches"] / ranks, moved_bytes(traffic)
                computed = computation.seconds(batches, moved, threads=1, cores=cores_per_rank)
                moving = sum(networks[one["link"]].seconds(each, shape, 1) for each in traffic)
                add_line(result, one, computed, moving)


def network_of(probes: list[dict[str, Any]]) -> Network:
    """With a rank on each node; of several probes of a link the medians."""
    alpha, bandwidth, duplex, per_exchange = (
        statistics.median(one[name] for one in probes) for name in ("alpha", "bandwidth", "duplex", "per_exchange")
    )
    link = Link(alpha, bandwidth)
    return Network(probes[0]["link"], link, link, 1, 1, duplex=duplex, per_exchange=per_exchange)


def add_line(result: Path, one: dict[str, Any], computed: float, moving: float) -> None:
    """To the file and the screen."""
    what = {name: one[name] for name in ("link", "sampler", "batches", "replication", "algorithm")}
    predicted = computed + moving
    found = {"measured": one["seconds"], "predicted": predicted, "computation": computed, "communication": moving}
    append(result, [{"kind": "plan", **what, **found, "ratio": predicted / one["seconds"]}])
    words = " ".join(map(str, what.values()))
    typer.echo(f"{words}: {1e3 * predicted:.0f} ms planned, {1e3 * one['seconds']:.0f} ms measured")


if __name__ == "__main__":
    typer.run(main)
