"""Placement of a graph on ranks: options of `spsample train`, and those that `spsample plan --ranks` shares with it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from spsample.common.options import Option
from spsample.common.units import require_bytes

if TYPE_CHECKING:
    from spsample.comm import Communicator

PANEL = "Ranks"

REPLICATION = Option("Ranks that hold the same block row, a divisor of their number: c.", PANEL, common=True)
ALGORITHM = Option(
    "How rows of other ranks are reached; changes no sample.", PANEL, choices=("auto", "column", "stages")
)
"""In a plan the first can be ``all`` too, and the second has other choices: each command gives its type."""

ReplicateHubs = Annotated[
    str | None,
    Option(
        "Memory for rows of hubs that every rank holds; changes no sample.",
        PANEL,
        values="bytes, or as in `256MiB`",
        unset="none",
        check=require_bytes,
    ),
]


@dataclass(frozen=True)
class RankOptions:
    """Placement of a graph and its features on the ranks, and the connection between these."""

    partitioned: Annotated[
        bool,
        Option(
            "On several ranks: each holds block rows of graph and features, or all of them.",
            PANEL,
            flags="--partitioned/--replicated",
            common=True,
        ),
    ] = True
    replication: Annotated[int, REPLICATION] = 1
    algorithm: Annotated[str, ALGORITHM] = "auto"
    replicate_hubs: ReplicateHubs = None
    feature_dtype: Annotated[
        str | None,
        Option(
            "Type of partitioned features, in memory and on their way.",
            PANEL,
            choices=("float32", "float16", "bfloat16", "int8"),
            unset="as stored",
        ),
    ] = None
    partition: Annotated[
        str | None,
        Option(
            "Block row of each vertex, of `spsample partition`; changes no samples but those of local batches.",
            PANEL,
            values="file (`.npy`)",
            unset="ranges of vertices",
        ),
    ] = None
    backend_comm: Annotated[
        str,
        Option(
            "What connects the ranks.",
            PANEL,
            choices=("auto", "mpi", "gloo", "nccl", "local"),
        ),
    ] = "auto"

    @property
    def of_block_rows(self) -> list[str]:
        """The options given that place block rows."""
        changed = {
            "--replication": self.replication != 1,
            "--replicate-hubs": bool(self.replicate_hubs),
            "--feature-dtype": self.feature_dtype is not None,
            "--partition": self.partition is not None,
            "--algorithm": self.algorithm != "auto",
        }
        return [option for option, is_changed in changed.items() if is_changed]

    def describe(self, comm: "Communicator") -> str:
        """In words, for a header."""
        where = f"{comm.size} ranks ({comm.name}), "
        if not self.partitioned:
            return where + "graph and features on each"
        blocks = f"graph and features in {comm.size // self.replication} block rows"
        copies = "" if self.replication == 1 else f", each on {self.replication} ranks"
        hubs = f", {self.replicate_hubs} of hub rows on all" if self.replicate_hubs else ""
        blocks += f" of {self.partition}" if self.partition else ""
        return f"{where}{blocks}{copies}; algorithm {self.algorithm}{hubs}"
