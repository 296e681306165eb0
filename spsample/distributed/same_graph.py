"""A check that all ranks have the same graph, by its contents."""

from __future__ import annotations

from typing import Any

import numpy as np

from spsample.comm import Communicator, collective
from spsample.comm.headers import exchange_numbers
from spsample.comm.objects import differing
from spsample.distributed.blocks import RowReader
from spsample.errors import InputError

_ARRAYS = {"indptr": "row pointers", "indices": "sources", "data": "weights", "edge_ids": "edge ids"}


def require_same_graph(comm: Communicator, rows: RowReader) -> None:
    """Refuse graphs that differ between ranks; collective.

    Graphs of stores are compared by the checksums that their stores keep; nothing is read. Where a rank has its graph
    in memory, all compare contents: each reads its graph once, and keeps the result.

    Raises
    ------
    InputError
        On every rank, naming what differs, and where.
    """
    facts: dict[str, Any] = {
        "numbers of vertices": rows.num_nodes,
        "numbers of edges": rows.num_edges,
        "weighting": rows.weighting,
        "dtypes": (str(rows.index_dtype), str(rows.data_dtype)),
    }
    _require(differing(comm, **facts))
    are_stored = np.full((comm.size, 1), int(rows.digest is not None))
    if exchange_numbers(comm, are_stored, "comparison of graphs").all():
        _require(differing(comm, contents=rows.digest))
        return
    with collective(comm, call="reading of graphs"):
        contents = {_ARRAYS[name]: number for name, number in rows.fingerprint().items()}
    _require(differing(comm, **contents))


def _require(different: dict[str, str]) -> None:
    if different:
        where = [f"{name} on {ranks}" for name, ranks in different.items()]
        if len(set(different.values())) == 1:
            where = [f"{', '.join(different)} on {next(iter(different.values()))}"]
        expected = "the same graph on every rank"
        raise InputError(argument="graph", given=f"other {'; other '.join(where)}", expected=expected)


__all__ = ["require_same_graph"]
