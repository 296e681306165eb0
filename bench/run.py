"""Run the benchmarks: `python bench/run.py --help`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bulk_size import bulk_size
from cold_store import cold_store
from copies import copies
from features import features
from local_batches import local_batches
from local_training import local_training
from planning import planning
from prefetch import prefetch
from sampling import sampling
from traffic import traffic

app = typer.Typer(help="Measurements of spsample. Each writes JSON lines and a plot into its --out folder.")
app.command()(bulk_size)
app.command()(planning)
app.command()(prefetch)
app.command()(sampling)
app.command()(traffic)
app.command()(cold_store)
app.command()(features)
app.command()(copies)
app.command()(local_batches)
app.command()(local_training)


@app.command()
def smoke(out: Annotated[Path, typer.Option(help="Folder of the results.")] = Path("bench/results")) -> None:
    """Every measurement once, on a tiny graph: whether they run, not what they show."""
    bulk_size(graph=["rmat:10,8"], batches=4, rounds=1, out=out)
    planning(graph=["rmat:10,8@16@8"], out=out)
    prefetch(dataset="planted:2000", batch_size=64, bulk_size="2", rounds=1, out=out)
    sampling(graph="rmat:10,8", batches=4, batch_size=64, rounds=1, out=out)
    cold_store(graph="rmat:10,8", bulk_size=[2], batch_size=64, rounds=1, state=["memory", "cold:normal"], out=out)
    features(form=["int8"], row_bytes=[64], table_bytes=1 << 20, result_bytes=1 << 18, rounds=1, out=out)
    copies(graph=["rmat:10,8"], vertices=[1000], rounds=1, out=out)
    local_batches(graph=["rmat:10,8"], ranks=[2], epochs=2, out=out)
    local_training(dataset="planted:400", ranks=2, step_seeds=64, epochs=1, seeds=1, out=out)
    traffic(graph=["rmat:10,8"], k=[8], replication=[1, 2], ranks=4, batch_size=16, out=out)


if __name__ == "__main__":
    app()
