"""Bulks on disk, for other programs: one file a bulk, and a manifest that describes them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from spsample.common.checks import require_path, require_type
from spsample.errors import DataError, InputError
from spsample.store.folder import system_errors, whole_file
from spsample.store.npy import read_npz
from spsample.store.verification import file_sha256, record, record_path, recorded_sha256, require_recorded

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from spsample.sampling import BulkSample

MANIFEST = "manifest.json"
FORMAT, VERSION = "spsample bulks", 2
"""Since version 2 each bulk has its checksum beside it."""
_EXPECTED = "a bulk that spsample sample wrote"
_WRITABLE = "a file that can be written; the same command goes on from here"


def bulk_arrays(bulk: BulkSample) -> dict[str, NDArray[Any]]:
    """Return the arrays of a bulk by name, each batch's slices one after the other.

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
        layers = [minibatch.layers[number - 1] for minibatch in bulk]
        columns: dict[str, list[Any]] = {
            "src": [layer.src_nodes for layer in layers],
            "dst": [layer.dst_nodes for layer in layers],
            "indptr": [layer.adj.indptr for layer in layers],
            "indices": [layer.adj.indices for layer in layers],
            "data": [layer.adj.data for layer in layers],
            "edge_ids": [layer.edge_ids for layer in layers],
        }
        arrays |= {
            f"{name}_{number}": np.concatenate(each) for name, each in columns.items() if each and each[0] is not None
        }
        lengths = {"src": columns["src"], "dst": columns["dst"], "entry": columns["indices"]}
        arrays |= {f"{name}_ptr_{number}": _pointers(each) for name, each in lengths.items()}
    return arrays


def _require_bulk(bulk: object) -> None:
    from spsample.sampling import BulkSample

    require_type("bulk", bulk, BulkSample, "a BulkSample")


def _pointers(arrays: list[Any]) -> NDArray[np.int64]:
    return np.cumsum([0, *map(len, arrays)], dtype=np.int64)


class Resumption(NamedTuple):
    """The place at which a run that writes bulks goes on.

    Attributes
    ----------
    next_batch : int
        The first batch that no whole file holds.
    damaged : DataError or None
        The error of the file that begins with it, where there is one: it is written again.
    """

    next_batch: int
    damaged: DataError | None = None


class BulkFiles:
    """A folder of bulks: ``bulk-BATCH.npz``, numbered by their first batch, and ``manifest.json``.

    A file appears under its name only once it is complete, so that a run that was killed goes on where it stopped. Its
    SHA-256 stands beside it, in ``bulk-BATCH.npz.sha256``, as ``sha256sum`` writes it: `load_bulk` compares them before
    it looks at the contents of the file, and ``sha256sum -c *.sha256`` checks a whole folder.

    Parameters
    ----------
    folder
        Made where it is missing.
    facts
        Facts that decide the samples. A folder that holds bulks of other facts is refused.

    Raises
    ------
    DataError
        If the folder holds something else.
    """

    def __init__(self, folder: str | Path, facts: dict[str, Any]) -> None:
        self.folder = require_path("folder", folder)
        require_type("facts", facts, dict, "a dict of facts")
        self.facts = {"format": FORMAT, "version": VERSION, "files": "npz", **facts}
        self._claim()

    def path(self, first_batch: int) -> Path:
        """Return the path of the bulk that begins with that batch."""
        return self.folder / f"bulk-{first_batch:08d}.npz"

    def write(self, bulk: BulkSample) -> Path:
        """Write a bulk and its checksum, which is there first; return its path."""
        _require_bulk(bulk)
        if len(bulk) == 0:
            raise InputError(argument="bulk", given="one without batches", expected="at least one: they name its file")
        path = self.path(int(bulk.batch_ids[0]))
        with system_errors(path, _WRITABLE, "the files before this one are whole"), whole_file(path) as file:
            np.savez(file, **bulk_arrays(bulk))  # type: ignore[arg-type]
            file.flush()
            sha256 = file_sha256(Path(file.name))
            with whole_file(record_path(path)) as beside:
                beside.write(record(path, sha256))
        return path

    def next_batch(self) -> int:
        """Return the first batch that no file holds, or only a damaged one: see `resumption`."""
        return self.resumption().next_batch

    def resumption(self) -> Resumption:
        """Find where a run goes on; files are written in order, and the last one is compared with its checksum."""
        named = [path for path in self.folder.glob("bulk-*.npz") if _NAME.fullmatch(path.name)]
        path = max(named, key=_first_batch, default=None)
        if path is None:
            return Resumption(0)
        first = _first_batch(path)
        try:
            batch_ids = load_bulk(path)["batch_ids"]
            if int(batch_ids[0]) != first:
                given = f"a bulk that begins with batch {batch_ids[0]}"
                raise DataError(argument=str(path), given=given, expected=f"batch {first}, as its name says")
        except DataError as error:
            return Resumption(first, error)
        return Resumption(int(batch_ids[-1]) + 1)

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
        with system_errors(self.folder, "a folder that can be made"):
            self.folder.mkdir(parents=True, exist_ok=True)
        with system_errors(path, _WRITABLE), whole_file(path) as file:
            file.write((json.dumps(self.facts, indent=2) + "\n").encode())

    def _compare(self, path: Path) -> None:
        try:
            with system_errors(path, "a manifest that can be read"):
                theirs = json.loads(path.read_text("utf-8"))
        except (ValueError, RecursionError) as error:
            raise DataError(argument=str(path), given=str(error), expected="JSON") from None
        if not isinstance(theirs, dict):
            raise DataError(argument=str(path), given=f"a {type(theirs).__name__}", expected="a JSON object")
        shared = {key for key in theirs if key in self.facts and theirs[key] == self.facts[key]}
        other = [key for key in {**self.facts, **theirs} if key not in shared]
        if other:
            older = "version" in other and theirs.get("version") == 1
            why = "Those of version 1, of an earlier release, have no checksums. " if older else ""
            raise DataError(
                argument=str(self.folder),
                given="bulks with " + ", ".join(f"{key}={theirs.get(key)!r}" for key in other),
                expected=", ".join(f"{key}={self.facts.get(key)!r}" for key in other),
                hint=f"{why}Write other bulks to another folder.",
            )


def load_bulk(path: str | Path) -> dict[str, NDArray[Any]]:
    """Read the arrays of a file that ``spsample sample`` wrote, named as `bulk_arrays` has them.

    Nothing in the file is looked at before all of it has been compared with its checksum, in the file ``NAME.sha256``
    beside it: move the two together.

    Raises
    ------
    DataError
        If there is no such file or no checksum of it, it is damaged, or it is no bulk.

    Examples
    --------
    >>> import tempfile
    >>> import spsample as sp
    >>> graph = sp.Graph.from_edge_index([[1, 2, 3, 0], [0, 0, 1, 3]], num_nodes=4)
    >>> bulk = sp.bulk_sample(graph, [0, 1, 3], sp.GraphSAGE([2]), batch_size=2)
    >>> path = BulkFiles(tempfile.mkdtemp(), {}).write(bulk)
    >>> load_bulk(path)["dst_1"].tolist()
    [0, 1, 3]
    """
    path = require_path("path", path)
    if path.is_dir():
        hint = "Give one file of it: load_bulk is called for each, in the order of their names."
        raise DataError(argument=str(path), given="a folder", expected=_EXPECTED, hint=hint)
    with system_errors(path, _EXPECTED):
        _check_bytes(path)
    arrays = read_npz(path, _EXPECTED)
    _check_arrays(path, arrays)
    return arrays


def _check_bytes(path: Path) -> None:
    """Compare a file with its checksum."""
    sha256, recorded = file_sha256(path), recorded_sha256(path)
    if recorded is None:
        beside = record_path(path).name
        raise DataError(
            argument=str(path),
            given="a file without a checksum",
            expected=f"{beside} beside it, which spsample sample writes",
            hint=f"Copy it along, or, to take the file as it is, run: sha256sum {path.name} > {beside}",
        )
    require_recorded(path, sha256, recorded, "The file is damaged: sample it again, or copy it again.")


def _check_arrays(path: Path, arrays: dict[str, NDArray[Any]]) -> None:
    """Check that the pointers of a bulk lead into its arrays."""
    batch_ids = arrays.get("batch_ids")
    layers = sum(name.startswith("src_ptr_") for name in arrays)
    if batch_ids is None or batch_ids.ndim != 1 or batch_ids.dtype.kind != "i" or not batch_ids.size or not layers:
        raise DataError(argument=str(path), given=f"the arrays {', '.join(arrays)}", expected=_EXPECTED)
    for number in range(1, layers + 1):
        for name, array in (("src", "src"), ("dst", "dst"), ("entry", "indices")):
            starts, held = arrays.get(f"{name}_ptr_{number}"), arrays.get(f"{array}_{number}")
            if starts is None or held is None or not _leads_through(starts, len(batch_ids), held.size):
                given = f"{name}_ptr_{number} that does not lead through {array}_{number}"
                raise DataError(argument=str(path), given=given, expected=_EXPECTED)


def _leads_through(starts: NDArray[Any], batches: int, length: int) -> bool:
    if starts.shape != (batches + 1,) or starts.dtype.kind != "i":
        return False
    return bool(starts[0] == 0 and starts[-1] == length and (np.diff(starts) >= 0).all())


_NAME = re.compile(r"bulk-(\d{8,})\.\w+")


def _first_batch(path: Path) -> int:
    """Return the number in the name of a file."""
    return int(path.name.split(".")[0].removeprefix("bulk-"))
