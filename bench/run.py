"""Run the benchmarks: `python bench/run.py --help`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bulk_size import bulk_size
from cache_hits import cache_hits
from call_faults import call_faults
from cold_store import cold_store
from cooperative import cooperative
from cooperative_plan import cooperative_plan
from cooperative_training import cooperative_training
from copies import copies
from disk_features import disk_features
from epoch import epoch
from epoch_accuracy import epoch_accuracy
from factored import factored
from features import features
from ladder import ladder
from light_loops import light_loops
from local_batches import local_batches
from local_training import local_training
from locality import locality
from locality_training import locality_training
from lookahead import lookahead
from machine_split import machine_split
from overlap import overlap
from partitions import partitions
from planning import planning
from prefetch import prefetch
from received import received
from reorder import reorder
from sampling import sampling
from scores import scores
from small_graphs import small_graphs
from traffic import traffic
from trainer_hits import trainer_hits

app = typer.Typer(help="Measurements of spsample. Each writes JSON lines and a plot into its --out folder.")
app.command()(bulk_size)
app.command()(planning)
app.command()(prefetch)
app.command()(sampling)
app.command()(light_loops)
app.command()(call_faults)
app.command()(small_graphs)
app.command()(machine_split)
app.command()(traffic)
app.command()(cold_store)
app.command()(features)
app.command()(copies)
app.command()(cooperative)
app.command()(cooperative_plan)
app.command()(factored)
app.command()(cooperative_training)
app.command()(locality)
app.command()(locality_training)
app.command()(received)
app.command()(scores)
app.command()(lookahead)
app.command()(disk_features)
app.command()(partitions)
app.command()(reorder)
app.command()(cache_hits)
app.command()(local_batches)
app.command()(local_training)
app.command()(ladder)
app.command()(trainer_hits)
app.command()(overlap)
app.command()(epoch)
app.command()(epoch_accuracy)


@app.command()
def smoke(out: Annotated[Path, typer.Option(help="Folder of the results.")] = Path("bench/results")) -> None:
    """Every measurement once, on a tiny graph: whether they run, not what they show."""
    bulk_size(graph=["rmat:10,8"], batches=4, rounds=1, out=out)
    planning(graph=["rmat:10,8@16@8"], out=out)
    prefetch(dataset="planted:2000", batch_size=64, bulk_size="2", rounds=1, out=out)
    sampling(graph="rmat:10,8", batches=4, batch_size=64, rounds=1, out=out)
    small_graphs(graph=["grid:20"], batch_size=[16], bulk_size=[1, 4], batches=8, rounds=1, out=out)
    call_faults(graph="rmat:10,8", bulk_size=[2], batch_size=16, calls=2, out=out)
    light_loops(
        graph=["rmat:10,8"],
        batch_size=[64],
        bulk_size=[4],
        batches=8,
        pass_ms=1,
        rounds=1,
        graph_cache=out / "graphs",
        out=out,
    )
    machine_split(graph="rmat:10,8", batches=4, batch_size=16, cores=2, rounds=1, graph_cache=out / "graphs", out=out)
    cold_store(graph="rmat:10,8", bulk_size=[2], batch_size=64, rounds=1, state=["memory", "cold:normal"], out=out)
    features(form=["int8"], row_bytes=[64], table_bytes=1 << 20, result_bytes=1 << 18, rounds=1, out=out)
    cooperative(graph=["rmat:10,8"], sampler=["GraphSAGE"], ranks=[2], out=out)
    cooperative_plan(graph=["rmat:10,8"], ranks=[2], out=out)
    data = ["planted:400"]
    factored("rmat:10,8", 32, 8, data, ranks=2, backend="threads", rounds=1, seeds=1, epochs=2, out=out)
    cooperative_training(dataset=["planted:300"], ranks=2, epochs=1, seeds=1, out=out)
    locality(graph=["rmat:10,8"], epochs=1, rounds=1, out=out)
    locality_training(dataset="planted:300", epochs=1, seeds=1, out=out)
    scores(graph=["rmat:10,8"], rounds=1, out=out)
    lookahead(graph=["rmat:10,8"], epochs=2, rounds=1, ranks=2, batch_size=16, out=out)
    disk_features(graph=["rmat:12,8"], row_bytes=[512], share=0.9, rounds=1, epochs=1, group=False, out=out)
    partitions(graph=["rmat:10,8"], parts=2, hops=[2], rounds=1, ranks=2, steps=1, batch_size=16, out=out)
    reorder(graph="rmat:10,8", row_bytes=64, cells=["rmat:10,8@GraphSAGE"], epochs=1, rounds=1, out=out)
    cache_hits(graph=["rmat:10,8"], epochs=2, trace_cache=out / "traces", out=out)
    received(graph=["rmat:12,8"], ranks=[4], epochs=8, out=out)
    copies(graph=["rmat:10,8"], vertices=[999], greedy_vertices=999, small_cases=1, rounds=1, epochs=1, out=out)
    local_batches(graph=["rmat:10,8"], ranks=[2], epochs=2, out=out)
    ladder(graph=["rmat:10,8"], rounds=1, out=out)
    trainer_hits(graph=["rmat:10,8"], sampler=["GraphSAGE"], epochs=1, out=out)
    local_training(dataset="planted:400", ranks=2, step_seeds=64, epochs=1, seeds=1, out=out)
    overlap(dataset="planted:2000", fanouts="3,2", batch_size=64, bulk_size=2, hidden=[4], rounds=1, cores=2, out=out)
    epoch(graph="rmat:10,8", hidden=[8], batches=2, batch_size=16, rounds=1, out=out)
    epoch_accuracy(dataset=["planted:300"], hidden=8, fanouts="5,5", batch_size=32, epochs=1, seeds=2, out=out)
    traffic(graph=["rmat:10,8"], k=[8], replication=[1, 2], ranks=4, batch_size=16, out=out)


if __name__ == "__main__":
    app()
