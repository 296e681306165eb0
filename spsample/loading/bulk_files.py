"""Bulks on disk, for other programs: one file a bulk, and a manifest that says what they are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from spsample.errors import DataError, require_module
from spsample.sparse.checks import require_choice, require_path, require_type
from spsample.store.files import whole_file
from spsample.store.folder import system_errors

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from spsample.sampling import BulkSample

__all__ = ["BULK_FORMATS", "BulkFiles", "bulk_arrays", "load_bulk"]

BULK_FORMATS = ("npz", "arrow")
MANIFEST = "manifest.json"
FORMAT, VERSION = "spsample bulks", 1


def bulk_arrays(bulk: BulkSample) -> dict[str, NDArray[Any]]:
    """The arrays of a bulk by name, each batch's slices one after the other.

    ``batch_ids`` (k,), and for every layer ``l`` from 1 (farthest from the seeds) to L: ``src_l`` and ``dst_l``
    (global vertex ids), of batch ``i`` from ``src_ptr_l[i]`` to ``src_ptr_l[i + 1]`` and likewise; ``indices_l``
    (local: places in the batch's ``src_l``) and, where there are, ``data_l`` and ``edge_ids_l``, by ``entry_ptr_l``;
    and ``indptr_l``, from 0 for each batch, at ``dst_ptr_l[i] + i`` to ``dst_ptr_l[i + 1] + i``, inclusive.

    Examples
    --------
    >>> import spsample as sp
    >>> graph = sp.Graph.from_edge_index([[1, 2, 3, 0], [0, 0, 1, 3]], num_nodes=4)
    >>> arrays = bulk_arrays(sp.bulk_sample(graph, [0, 1, 3], sp.GraphSAGE([2]), batch_size=2))
    >>> arrays["dst_1"].tolist(), arrays["dst_ptr_1"].tolist()
    ([0, 1, 3], [0, 2, 3])
    """
    _require_bulk(bulk)
    bulk = bulk.to_host()
    arrays: dict[str, NDArray[Any]] = {"batch_ids": bulk.batch_ids}
    for number in range(1, len(bulk.layers) + 1):
        parts = [minibatch.layers[number - 1] for minibatch in bulk]
        columns: dict[str, list[Any]] = {
            "src": [part.src_nodes for part in parts],
            "dst": [part.dst_nodes for part in parts],
            "indptr": [part.adj.indptr for part in parts],
            "indices": [part.adj.indices for part in parts],
            "data": [part.adj.data for part in parts],
            "edge_ids": [part.edge_ids for part in parts],
        }
        arrays |= {f"{name}_{number}": np.concatenate(each) for name, each in columns.items() if _is_there(each)}
        lengths = {"src": columns["src"], "dst": columns["dst"], "entry": columns["indices"]}
        arrays |= {f"{name}_ptr_{number}": _pointers(each) for name, each in lengths.items()}
    return arrays


def _require_bulk(bulk: object) -> None:
    from spsample.sampling import BulkSample

    require_type("bulk", bulk, BulkSample, "a BulkSample")


def _is_there(parts: list[Any]) -> bool:
    return bool(parts) and parts[0] is not None


def _pointers(parts: list[Any]) -> NDArray[np.int64]:
    return np.cumsum([0, *map(len, parts)], dtype=np.int64)


class BulkFiles:
    """A folder of bulks: ``bulk-BATCH.npz`` (or ``.arrow``), numbered by their first batch, and ``manifest.json``.

    A file appears under its name only once it is complete, so that a run that was killed goes on where it stopped.

    Parameters
    ----------
    folder
        Made where it is missing.
    facts
        What decides the samples. A folder that holds bulks of other facts is refused.
    form
        ``"npz"``, or ``"arrow"`` (an Arrow IPC file with one row, whose columns are lists; needs pyarrow).

    Raises
    ------
    DataError
        If the folder holds something else.
    MissingDependencyError
        If pyarrow is wanted and not installed.
    """

    def __init__(self, folder: str | Path, facts: dict[str, Any], form: str = "npz") -> None:
        self.folder = require_path("folder", folder)
        require_type("facts", facts, dict, "a dict of facts")
        require_choice("form", form, BULK_FORMATS)
        self.form = form
        self._write = {"npz": _write_npz, "arrow": _write_arrow}[form]
        if form == "arrow":
            _require_arrow()
        self.facts = {"format": FORMAT, "version": VERSION, "files": form, **facts}
        self._claim()

    def path(self, first_batch: int) -> Path:
        """Where the bulk that begins with that batch is, or will be."""
        return self.folder / f"bulk-{first_batch:08d}.{self.form}"

    def write(self, bulk: BulkSample) -> Path:
        """Write a bulk; return its path."""
        _require_bulk(bulk)
        path = self.path(int(bulk.batch_ids[0]))
        with (
            system_errors(path, "a file that can be written; the same command goes on from here"),
            whole_file(path) as file,
        ):
            self._write(file, bulk_arrays(bulk))
        return path

    def next_batch(self) -> int:
        """The first batch that no file holds; files are written in order."""
        paths = sorted(self.folder.glob(f"bulk-*.{self.form}"))
        return 0 if not paths else int(load_bulk(paths[-1])["batch_ids"][-1]) + 1

    def _claim(self) -> None:
        path = self.folder / MANIFEST
        if path.exists():
            self._compare(path)
            return
        if self.folder.exists() and not self.folder.is_dir():
            raise DataError(argument=str(self.folder), given="a file", expected="a folder")
        if self.folder.exists() and any(not entry.name.startswith(".") for entry in self.folder.iterdir()):
            raise DataError(
                argument=str(self.folder),
                given="a folder with other files",
                expected="a new, an empty or its own folder",
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as file:
            file.write((json.dumps(self.facts, indent=2) + "\n").encode())

    def _compare(self, path: Path) -> None:
        try:
            theirs = json.loads(path.read_text("utf-8"))
        except ValueError as error:
            raise DataError(argument=str(path), given=str(error), expected="JSON") from None
        if not isinstance(theirs, dict):
            raise DataError(argument=str(path), given=f"a {type(theirs).__name__}", expected="a JSON object")
        other = [key for key in {**self.facts, **theirs} if theirs.get(key) != self.facts.get(key)]
        if other:
            raise DataError(
                argument=str(self.folder),
                given="bulks with " + ", ".join(f"{key}={theirs.get(key)!r}" for key in other),
                expected=", ".join(f"{key}={self.facts.get(key)!r}" for key in other),
                hint="Write other bulks to another folder.",
            )


def load_bulk(path: str | Path) -> dict[str, NDArray[Any]]:
    """The arrays of a file that ``spsample sample`` wrote, named as `bulk_arrays` has them.

    Raises
    ------
    DataError
        If the file cannot be read.
    MissingDependencyError
        If it is an Arrow file and pyarrow is not installed.
    """
    path = require_path("path", path)
    try:
        return dict(_read_arrow(path) if path.suffix == ".arrow" else _read_npz(path))
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise DataError(argument=str(path), given=str(error), expected="a bulk that spsample sample wrote") from error


def _write_npz(file: Any, arrays: dict[str, NDArray[Any]]) -> None:
    np.savez(file, **arrays)  # type: ignore[arg-type]


def _read_npz(path: Path) -> Iterator[tuple[str, NDArray[Any]]]:
    with np.load(path) as arrays:
        yield from arrays.items()


def _require_arrow() -> Any:
    return require_module("pyarrow", needed_for="the Arrow format", extra="convert")


def _write_arrow(file: Any, arrays: dict[str, NDArray[Any]]) -> None:
    arrow = _require_arrow()
    columns = {}
    for name, array in arrays.items():
        offsets = arrow.array([0, len(array)], arrow.int64())
        columns[name] = arrow.LargeListArray.from_arrays(offsets, arrow.array(array))
    table = arrow.table(columns)
    with import_module("pyarrow.ipc").new_file(file, table.schema) as writer:
        writer.write_table(table)


def _read_arrow(path: Path) -> Iterator[tuple[str, NDArray[Any]]]:
    arrow = _require_arrow()
    with arrow.memory_map(str(path)) as file:
        table = import_module("pyarrow.ipc").open_file(file).read_all()
        for name in table.column_names:
            yield name, table.column(name).chunk(0).flatten().to_numpy(zero_copy_only=False).copy()
