"""``spsample sample``: the bulks of an epoch in files, for other programs.

Parameters of the command are what it samples from and the form of its output; all else is a field of a dataclass.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spsample.cli import sampling
from spsample.cli.options import AsJson, overridden, with_options
from spsample.cli.progress import PhaseProgress
from spsample.cli.screen import print_json, print_message
from spsample.common.options import Option
from spsample.common.units import count
from spsample.settings.sampling import RandomSeed

if TYPE_CHECKING:
    from spsample.data import Dataset
    from spsample.loading import BulkLoader


@dataclass(frozen=True)
class EpochOptions:
    """Options of the epoch."""

    epoch: Annotated[int, Option("Which epoch.", "Run", common=True)] = 0
    shuffle: Annotated[
        bool, Option("Draw an order for the seeds.", "Run", flags="--shuffle/--no-shuffle", common=True)
    ] = True
    random_seed: RandomSeed = 0


@with_options(sampling.SamplingOptions, EpochOptions, common=("bulk_size", "memory_budget"))
def sample(
    typed: dict[str, Any],
    source: Annotated[str, typer.Argument(help=sampling.SOURCE)],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the bulks; made where it is missing.")],
    as_json: AsJson = False,
) -> None:
    """Sample an epoch and write its bulks into a folder, one a file, with a manifest.

    A run that was stopped goes on after the last complete file when the same command is given again. That file is
    compared with its checksum first, and written again where it is damaged.

    Examples
    --------
    * `spsample sample planted:20000 -o bulks --fanouts 15,10`
    * `spsample sample rmat:14,16 -o bulks --sampler ladies --layer-sizes 512,512 --epoch 3`
    * `spsample sample rmat:14,16 -o bulks --layout subgraph --edge-ids`
    """
    from spsample.data import load_dataset
    from spsample.loading.bulk_files import BulkFiles

    options = overridden(sampling.SamplingOptions(), typed)
    run = overridden(EpochOptions(), typed)
    dataset = load_dataset(source, random_seed=run.random_seed)
    loader = sampling.make_loader(
        dataset,
        sampling.make_sampler(options, typed),
        options,
        prefetch=1 if options.bulk_size == "auto" else 0,  # nothing is sampled ahead: this chooses smaller bulks
        shuffle=run.shuffle,
        random_seed=run.random_seed,
    )
    files = BulkFiles(output, _facts(source, dataset, loader, run.epoch))
    done, damaged = files.resumption()
    if damaged is not None:
        print_message(f"written again: {damaged}")
    paths: list[str] = []
    with PhaseProgress("files", quiet=as_json) as work:
        try:
            for bulk in loader.bulks(run.epoch, done):
                paths.append(files.write(bulk).name)
                work.show("bulks", len(paths))
        except KeyboardInterrupt:
            print_message(f"stopped after {len(paths):,} files; the same command goes on")
            raise
    if as_json:
        print_json({"folder": str(output), "batches": len(loader), "found": done, "written": paths})
    else:
        sampled, written = count(len(loader), "minibatch", "minibatches"), count(len(paths), "file", "files")
        print(f"{output}: {sampled}; {done:,} {'was' if done == 1 else 'were'} there, {written} written")


def _facts(source: str, dataset: Dataset, loader: BulkLoader, epoch: int) -> dict[str, Any]:
    """Return the facts that decide the samples, for the manifest."""
    state = loader.state_dict()
    del state["next_batch"], state["epoch"]
    return {
        "source": source,
        "name": dataset.name,
        **state,
        "epoch": epoch,
        "edge_ids": loader.edge_ids,
        "num_batches": len(loader),
        "num_layers": len(loader.sampler.sizes),
    }
