"""Flip single bits of every form of file that the library reads, and count what comes of it.

python tests/fuzz/flip_bits.py --flips 10000
python tests/fuzz/flip_bits.py --only "bulk, .npz" --every-bit

Each form is read in a process of its own, so that a crash is seen and counted. After each flip the outcome is

- equal: what is read is what was written;
- refused: an error of `spsample.errors`, with the file's name or that of the argument;
- silent: something else is read without a word. A finding where the form has a checksum ("sealed");
- raw: an error of another kind. A finding;
- crash, hang: the process died, or said nothing for a minute. A finding.

The exit status is 1 where there are findings; each is printed with its file, byte and bit.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import queue
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import spsample as sp
from spsample.errors import DataError, SpSampleError
from spsample.loading import BulkFiles
from spsample.store import StoreWriter

PATIENCE = 60.0
"""Seconds that one flip may take."""
ROOM, LARGEST_FILE = 3 << 30, 64 << 20
"""Address space beyond what the imports take, and the largest file that may be written."""
NODES, EDGES = 40, 120
FACTS = {"epoch": 1, "shuffle": True, "sampler": "GraphSAGE([3, 2])", "budget": None}
FINDINGS = ("silent", "raw", "crash", "hang")


class Form(NamedTuple):
    """How files of one form are made and read: `make(folder)` writes them, `read(folder)` tells what they hold."""

    make: Callable[[Path], None]
    read: Callable[[Path], Any]
    sealed: bool = False
    share: float = 1.0
    """Of the flips, against the other forms: less for those that take long to read."""


# --------------------------------------------------------------------------------------------------------- contents


def edge_list() -> np.ndarray:
    return np.random.default_rng(0).integers(0, NODES, (2, EDGES))


def dataset() -> Any:
    from spsample.data import planted

    return planted(NODES, 3, 2)


def put(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def as_lines(*columns: Any, mark: str = ",") -> bytes:
    return "".join(mark.join(str(value) for value in row) + "\n" for row in zip(*columns, strict=True)).encode()


# ------------------------------------------------------------------------------------------- stores, data sets, bulks


def make_store(folder: Path) -> None:
    graph = sp.Graph.from_edge_index(edge_list(), num_nodes=NODES, edge_weight=np.linspace(0, 1, EDGES))
    order = np.random.default_rng(0).permutation(NODES)
    with StoreWriter(folder / "store") as writer:
        writer.write_graph(graph)
        writer.write("x", np.ones((NODES, 2), np.float16))
        writer.write("degree", np.ones(NODES, np.float32))
        writer.write("y", np.arange(NODES) % 3)
        writer.write("original_ids", np.arange(NODES) * 2)
        writer.write("names_data", np.full(2 * NODES, 97, np.uint8))
        writer.write("names_ptr", np.arange(NODES + 1) * 2)
        for name, part in zip(("train_idx", "val_idx", "test_idx"), np.array_split(order, 3), strict=True):
            writer.write(name, part)
        facts = {"metric": "accuracy", "num_classes": 3, "random_seed": 7, "noise": 0.25}
        writer.set(name="small", node_features=["x", "degree"], **facts)


def read_store(folder: Path) -> Any:
    from spsample.store import GraphStore

    store = GraphStore.open(folder / "store")
    store.verify()
    return store.meta, {name: np.asarray(store.array(name)) for name in store.names}


def read_store_unverified(folder: Path) -> Any:
    data = sp.load_dataset(str(folder / "store"))
    return dataset_contents(data)


def dataset_contents(data: Any) -> Any:
    arrays = (data.graph.indptr, data.graph.indices, data.graph.data, data.x, data.y)
    return arrays, data.train_idx, data.val_idx, data.test_idx, data.meta, data.metric, data.num_classes, data.name


def make_npz(folder: Path) -> None:
    data = dataset()
    arrays = {name: getattr(data, name) for name in ("x", "y", "train_idx", "val_idx", "test_idx")}
    meta = np.array('{"metric": "accuracy"}')
    for name, save in (("plain", np.savez), ("packed", np.savez_compressed)):
        save(folder / f"{name}.npz", indptr=data.graph.indptr, indices=data.graph.indices, meta=meta, **arrays)


def read_npz(folder: Path) -> Any:
    return [dataset_contents(sp.load_dataset(str(folder / f"{name}.npz"))) for name in ("plain", "packed")]


def make_bulks(folder: Path) -> None:
    graph = sp.Graph.from_edge_index(edge_list(), num_nodes=NODES, edge_weight=np.ones(EDGES))
    files = BulkFiles(folder / "bulks", FACTS)
    files.write(sp.bulk_sample(graph, range(12), sp.GraphSAGE([3, 2]), batch_size=4, edge_ids=True))
    (folder / "bulks" / "manifest.json").unlink()  # a form of its own


def read_bulk(folder: Path) -> Any:
    return sp.load_bulk(folder / "bulks" / "bulk-00000000.npz")


def make_manifest(folder: Path) -> None:
    BulkFiles(folder / "bulks", FACTS)


def read_manifest(folder: Path) -> Any:
    return BulkFiles(folder / "bulks", FACTS).facts


# ------------------------------------------------------------------------------------------------------ run folders


def make_checkpoint(folder: Path) -> None:
    import torch

    from spsample.training import write_checkpoint

    write_checkpoint(folder / "checkpoint.pt", {"weights": torch.arange(20.0), "epoch": 3, "names": ["a", "b"]})


def read_checkpoint(folder: Path) -> Any:
    from spsample.training import read_checkpoint

    state = read_checkpoint(folder / "checkpoint.pt")
    return {key: np.asarray(value) if key == "weights" else value for key, value in state.items()}


def command(*arguments: str) -> None:
    """Run a command of `spsample` in this process; what it refuses comes out as an error."""
    import contextlib
    import io

    from spsample.cli.main import app

    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as told:
        status = app(list(arguments), standalone_mode=False)
    if status:
        raise DataError(argument="command", given=told.getvalue(), expected="one that ends well")


TRAINING = ("--hidden", "4", "--fanouts", "2", "--epochs", "1", "--batch-size", "16", "--prefetch", "0")


def make_run(folder: Path) -> None:
    command("train", f"planted:{NODES}", "--out", str(folder / "run"), *TRAINING, "--log-every", "1")
    (folder / "run" / "checkpoint.pt").rename(folder.parent / "checkpoint.pt")
    for name in ("curves.png", "phases.png"):
        (folder / "run" / name).unlink(missing_ok=True)


def read_results(folder: Path) -> Any:
    from spsample.training.runs import RunFolder

    result = RunFolder(folder / "run").result()
    return None if result is None else result.as_dict()


def read_run(folder: Path) -> Any:
    """Go on with the run: its settings, journal and results are read; the checkpoint is a form of its own."""
    shutil.copy(folder.parent / "checkpoint.pt", folder / "run" / "checkpoint.pt")
    command("train", f"planted:{NODES}", "--resume", str(folder / "run"), *TRAINING, "--log-every", "1")
    return read_results(folder)


def make_config(folder: Path) -> None:
    settings = ("fanouts = [3, 2]", "batch-size = 16", "shuffle = false", 'layout = "blocks"', "# a comment")
    put(folder / "config.toml", "\n".join(["[sample]", *settings, ""]).encode())


def read_config(folder: Path) -> Any:
    out = folder.parent / "sampled"
    shutil.rmtree(out, ignore_errors=True)
    command("sample", f"planted:{NODES}", "-o", str(out), "--config", str(folder / "config.toml"))
    return [sp.load_bulk(path) for path in sorted(out.glob("bulk-*.npz"))]


def make_partition(folder: Path) -> None:
    np.save(folder / "parts.npy", np.arange(NODES, dtype=np.int32) % 4)


def read_partition(folder: Path) -> Any:
    from spsample.cli.ranks import integers_of

    return np.asarray(integers_of(folder / "parts.npy"))


def make_disk_rows(folder: Path) -> None:
    np.save(folder / "rows.npy", np.arange(3.0 * NODES, dtype=np.float32).reshape(NODES, 3))


def read_disk_rows(folder: Path) -> Any:
    with sp.DiskFeatures(folder / "rows.npy", "64KiB") as rows:
        return rows.gather(np.arange(rows.num_rows))


# ------------------------------------------------------------------------------------------------------ conversions


def converted(source: str, **options: Any) -> Callable[[Path], Any]:
    """Return the reader of a form that `convert` takes; names of files in the options are those of the folder."""

    def read(folder: Path) -> Any:
        from spsample.convert import ConvertOptions, convert
        from spsample.store import GraphStore

        named = {key: str(folder / value) if str(value).endswith(".npy") else value for key, value in options.items()}
        files = ("nodes", "features", "labels", "splits")
        named |= {key: folder / value for key, value in options.items() if key in files}
        path = ",".join(str(folder / name) for name in source.split(","))
        out = folder.parent / "converted"
        shutil.rmtree(out, ignore_errors=True)
        convert(path, out, ConvertOptions(threads=1, memory_budget="512MiB", **named))
        store = GraphStore.open(out)
        return store.meta, {name: np.array(store.array(name)) for name in store.names}

    return read


def make_text(name: str, pack: Callable[[bytes], bytes] = bytes) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        lines = b"source,target,weight\n" + as_lines(*edge_list(), np.round(np.linspace(0, 1, EDGES), 3))
        put(folder / name, pack(lines))

    return make


def zstd(content: bytes) -> bytes:
    import pyarrow

    return pyarrow.compress(content, codec="zstd", asbytes=True)


def make_strings(folder: Path) -> None:
    names = np.array([f"vertex-{i}" for i in range(NODES)])
    put(folder / "named.tsv", as_lines(*names[edge_list()], mark="\t"))


def node_table() -> Any:
    import pyarrow

    order = np.random.default_rng(5).permutation(NODES)
    split = np.array(["train", "val", "test"])[order % 3]
    return pyarrow.table({"id": order, "a": order / 4, "b": order % 5, "label": order % 3, "split": split})


def make_nodes(name: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        from pyarrow import csv, parquet

        make_npy(folder.parent)
        write = csv.write_csv if name.endswith(".csv") else parquet.write_table
        write(node_table(), folder / name)

    return make


def read_nodes(name: str) -> Callable[[Path], Any]:
    return lambda folder: converted("../edges.npy", nodes=name, num_nodes=NODES)(folder)


def make_ogb(folder: Path) -> None:
    split = {part: np.arange(NODES)[np.arange(NODES) % 3 == i] for i, part in enumerate(("train", "valid", "test"))}
    files = {
        "raw/edge": as_lines(*edge_list()),
        "raw/num-node-list": f"{NODES}\n".encode(),
        "raw/node-feat": as_lines(np.arange(NODES) / 4, np.arange(NODES) % 5),
        "raw/node-label": as_lines(np.arange(NODES) % 3),
    } | {f"split/time/{part}": as_lines(ids) for part, ids in split.items()}
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        put(folder / f"{name}.csv.gz", gzip.compress(text))


def make_edge_index(folder: Path) -> None:
    mask = np.arange(NODES) % 3
    masks = {f"{part}_mask": mask == i for i, part in enumerate(("train", "valid", "test"))}
    np.savez(folder / "edges.npz", edge_index=edge_list(), num_nodes=NODES, y=mask[:, None].astype(float), **masks)


def make_npy(folder: Path) -> None:
    np.save(folder / "edges.npy", edge_list().T.copy())
    np.save(folder / "weights.npy", np.linspace(0, 1, EDGES))


def make_pair(folder: Path) -> None:
    np.save(folder / "src.npy", edge_list()[0].astype(np.int32))
    np.save(folder / "dst.npy", edge_list()[1].astype(np.int32))


def make_mtx(folder: Path) -> None:
    head = f"%%MatrixMarket matrix coordinate real general\n% made up\n{NODES} {NODES} {EDGES}\n"
    put(folder / "edges.mtx", head.encode() + as_lines(*(edge_list() + 1), np.linspace(0, 1, EDGES), mark=" "))


def make_parquet(folder: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table({"s": edge_list()[0], "t": edge_list()[1], "w": np.linspace(0, 1, EDGES)})
    pyarrow.parquet.write_table(table, folder / "edges.parquet")


def make_scipy(folder: Path) -> None:
    import scipy.sparse

    edges = edge_list()
    scipy.sparse.save_npz(
        folder / "edges.npz",
        scipy.sparse.csr_array((np.linspace(0, 1, EDGES), (edges[1], edges[0])), shape=(NODES, NODES)),
    )


def make_masks(folder: Path) -> None:
    data = dataset()
    masks = {f"{part}_masks": np.arange(NODES)[None] % 3 == i for i, part in enumerate(("train", "val", "test"))}
    np.savez(folder / "masks.npz", indptr=data.graph.indptr, indices=data.graph.indices, y=data.y, **masks)


def make_pyg(folder: Path) -> None:
    import torch
    from torch_geometric.data import Data

    data = Data(edge_index=torch.as_tensor(edge_list()), num_nodes=NODES, x=torch.ones(NODES, 2))
    torch.save(data, folder / "data.pt")


def make_attributes(folder: Path) -> None:
    make_npy(folder)
    np.save(folder / "x.npy", np.ones((NODES, 2), np.float32))
    np.save(folder / "y.npy", np.arange(NODES) % 3)
    parts = np.array_split(np.arange(NODES), 3)
    np.savez(folder / "splits.npz", **dict(zip(("train_idx", "val_idx", "test_idx"), parts, strict=True)))


FORMS = {
    "store, verified": Form(make_store, read_store, sealed=True, share=3),
    "store, opened": Form(make_store, read_store_unverified),
    "data set, .npz": Form(make_npz, read_npz, sealed=True),
    "bulk, .npz": Form(make_bulks, read_bulk, sealed=True),
    "bulks' manifest": Form(make_manifest, read_manifest, sealed=True),
    "checkpoint": Form(make_checkpoint, read_checkpoint, sealed=True),
    "run, results": Form(make_run, read_results),
    "run, resumed": Form(make_run, read_run, share=0.2),
    "settings, .toml": Form(make_config, read_config, share=0.5),
    "partition": Form(make_partition, read_partition),
    "features on a disk": Form(make_disk_rows, read_disk_rows),
    "convert .csv": Form(
        make_text("edges.csv"), converted("edges.csv", weights="weight", columns=("source", "target"))
    ),
    "convert .csv.gz": Form(
        make_text("edges.csv.gz", gzip.compress), converted("edges.csv.gz", weights="2"), sealed=True
    ),
    "convert .csv.zst": Form(make_text("edges.csv.zst", zstd), converted("edges.csv.zst", weights="2")),
    "convert names": Form(make_strings, converted("named.tsv", string_ids=True, header=False)),
    "convert .npy": Form(make_npy, converted("edges.npy", weights="weights.npy")),
    "convert two .npy": Form(make_pair, converted("src.npy,dst.npy")),
    "convert .mtx": Form(make_mtx, converted("edges.mtx")),
    "convert .parquet": Form(make_parquet, converted("edges.parquet", weights="w")),
    "convert SciPy .npz": Form(make_scipy, converted("edges.npz"), sealed=True),
    "convert masks .npz": Form(make_masks, converted("masks.npz"), sealed=True),
    "convert edge_index .npz": Form(make_edge_index, converted("edges.npz"), sealed=True),
    "convert nodes": Form(make_nodes("nodes.csv"), read_nodes("nodes.csv")),
    "convert nodes .parquet": Form(make_nodes("nodes.parquet"), read_nodes("nodes.parquet")),
    "convert OGB": Form(make_ogb, converted("."), sealed=True),
    "convert .pt": Form(make_pyg, converted("data.pt")),
    "convert attributes": Form(
        make_attributes, converted("edges.npy", features="x.npy", labels="y.npy", splits="splits.npz")
    ),
}


# ------------------------------------------------------------------------------------------------------ one process


class Flip(NamedTuple):
    """Which bit of which file."""

    file: str
    byte: int
    bit: int


def choose(sizes: dict[str, int], seed: int, number: int) -> Flip:
    """Return one of the bits at random: each file as often, and half of the flips near an end, where headers are."""
    rng = np.random.default_rng([seed, number])
    name = sorted(sizes)[int(rng.integers(len(sizes)))]
    size, near = sizes[name], min(sizes[name], 300)
    at = int(rng.integers(size)) if rng.random() < 0.5 else int(rng.integers(-near, near))
    return Flip(name, at % size, int(rng.integers(8)))


def numbered(sizes: dict[str, int], number: int) -> Flip:
    """Return the bit of that number, all files one after the other."""
    for name in sorted(sizes):
        if number < 8 * sizes[name]:
            return Flip(name, number // 8, number % 8)
        number -= 8 * sizes[name]
    raise IndexError(number)


def digest(value: Any) -> str:
    """Return a hash of what was read: nested tuples, dictionaries and arrays."""
    if hasattr(value, "tocoo"):
        value = (value.indptr, value.indices, value.data, value.shape)
    if isinstance(value, np.ndarray):
        text = f"{value.dtype}{value.shape}".encode() + value.tobytes()
    elif isinstance(value, dict):
        text = "".join(f"{key}:{digest(value[key])}," for key in sorted(value)).encode()
    elif isinstance(value, (list, tuple)):
        text = "".join(digest(entry) for entry in value).encode()
    else:
        text = repr(value).encode()
    return hashlib.sha256(text).hexdigest()


def outcome(read: Callable[[], Any], expected: str) -> tuple[str, str]:
    """Return what a reading came to, and the error's words."""
    try:
        return ("equal" if digest(read()) == expected else "silent"), ""
    except SpSampleError as error:
        return "refused", f"{type(error).__name__}: {error}"
    except Exception as error:
        import traceback

        place = traceback.extract_tb(error.__traceback__)[-1]
        return "raw", f"{type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno})"


def flipped(content: bytes, flip: Flip) -> bytes:
    changed = bytearray(content)
    changed[flip.byte] ^= 1 << flip.bit
    return bytes(changed)


def restore(folder: Path, contents: dict[str, bytes]) -> None:
    """Make the folder again what it was."""
    for path in folder.rglob("*"):
        if path.is_file() and str(path.relative_to(folder)) not in contents:
            path.unlink()
    for name, content in contents.items():
        path = folder / name
        if not path.is_file() or path.read_bytes() != content:
            path.write_bytes(content)


def limit_memory() -> None:
    """Let what asks for absurd sizes fail, instead of filling the machine."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + ROOM,) * 2)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE,) * 2)


def work(name: str, seed: int, first: int, count: int, every_bit: bool) -> None:
    """Flip bits of one form, and print for each its number, before, and its outcome, after."""
    warnings.simplefilter("ignore")
    form = FORMS[name]
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / "files"
        folder.mkdir()
        form.make(folder)
        paths = [path for path in folder.rglob("*") if path.is_file()]
        contents = {str(path.relative_to(folder)): path.read_bytes() for path in paths}
        expected = digest(form.read(folder))
        restore(folder, contents)
        sizes = {key: len(content) for key, content in contents.items() if content}
        last = min(first + count, 8 * sum(sizes.values())) if every_bit else first + count
        limit_memory()
        print("ready", flush=True)
        for number in range(first, last):
            flip = numbered(sizes, number) if every_bit else choose(sizes, seed, number)
            print(f"> {number}\t{flip.file}\t{flip.byte}\t{flip.bit}", flush=True)
            (folder / flip.file).write_bytes(flipped(contents[flip.file], flip))
            kind, words = outcome(lambda: form.read(folder), expected)
            print(f"= {kind}\t{' '.join(words.split())}", flush=True)
            restore(folder, contents)
    print("end", flush=True)


# --------------------------------------------------------------------------------------------------- all of them


class Tally(NamedTuple):
    """What one form came to."""

    name: str
    sealed: bool
    counts: Counter[str]
    findings: list[str]
    problem: str = ""


def lines_of(process: subprocess.Popen[str]) -> Callable[[], str | None]:
    """Return a function that waits for the next line: None where there is none in time, "" at the end."""
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def pump() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line)
        lines.put("")

    threading.Thread(target=pump, daemon=True).start()

    def next_line() -> str | None:
        try:
            return lines.get(timeout=PATIENCE)
        except queue.Empty:
            return None

    return next_line


def tally(name: str, sealed: bool, command: Callable[[int], Sequence[str]]) -> Tally:
    """Run `command(first)` until it has ended well, from the next flip on where its process died."""
    made = Tally(name, sealed, Counter(), [])
    first = 0
    while True:
        begun, ended, words = follow(command(first), made)
        if ended:
            return made
        if begun is None:
            return made._replace(problem=words)
        first = begun + 1


def follow(command: Sequence[str], made: Tally) -> tuple[int | None, bool, str]:
    """Count what a process says. Return the last flip it began, whether it came to its end, and its last words."""
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        next_line, begun, where = lines_of(process), None, ""
        ended = False
        while line := next_line():
            mark, _, rest = line.rstrip("\n").partition(" ")
            if mark == ">":
                number, _, where = rest.partition("\t")
                begun = int(number)
            elif mark == "=":
                kind, _, words = rest.partition("\t")
                note(made, kind, where, words)
                where = ""
            elif mark == "end":
                ended = True
        process.kill()
        status = process.wait()
        errors.seek(0)
        last = errors.read().strip()[-2000:]
    if not ended and where:
        note(made, "hang" if line is None else "crash", where, f"status {status}: {last.splitlines()[-1:]}")
    return begun, ended, last


def note(made: Tally, kind: str, where: str, words: str) -> None:
    """Count an outcome, and keep it where it is a finding."""
    made.counts[kind] += 1
    if kind in FINDINGS and (kind != "silent" or made.sealed):
        file, byte, bit = where.split("\t")
        made.findings.append(f"{made.name}: {kind}: {file}, byte {byte}, bit {bit}: {words}")


def available(name: str) -> bool:
    """Whether what a form needs is installed."""
    needs = {"pyarrow": ("parquet", "zst"), "torch": ("checkpoint", "run"), "torch_geometric": (".pt",)}
    from importlib.util import find_spec

    return all(find_spec(package) for package, words in needs.items() if any(word in name for word in words))


def run_form(name: str, count: int, seed: int, every_bit: bool) -> Tally:
    def command(first: int) -> list[str]:
        words = [sys.executable, __file__, "--worker", name, "--seed", str(seed)]
        words += ["--first", str(first), "--flips", str(count - first)]
        return [*words, "--every-bit"] if every_bit else words

    return tally(name, FORMS[name].sealed, command)


def report(tallies: Iterable[Tally]) -> bool:
    """Print the table, each form as it is done, and the findings; return whether there are any."""
    kinds = ("equal", "refused", "silent", "raw", "crash", "hang")
    print(f"{'form':20} {'checksum':8} {'flips':>7} " + " ".join(f"{kind:>8}" for kind in kinds))
    total: Counter[str] = Counter()
    findings: list[str] = []
    for each in tallies:
        total += each.counts
        numbers = " ".join(f"{each.counts[kind]:8}" for kind in kinds)
        print(f"{each.name:20} {'yes' if each.sealed else 'no':8} {sum(each.counts.values()):7} {numbers}", flush=True)
        findings += [*each.findings, *([f"{each.name}: could not be run: {each.problem}"] if each.problem else [])]
    print(f"{'all':20} {'':8} {sum(total.values()):7} " + " ".join(f"{total[kind]:8}" for kind in kinds))
    print(f"{len(findings)} findings")
    for line in findings:
        print(f"  {line}")
    return bool(findings)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flips", type=int, default=10_000, help="of all forms together (of a --worker: of its form)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", action="append", choices=sorted(FORMS), help="these forms alone")
    parser.add_argument("--every-bit", action="store_true", help="all bits of all files, instead of some at random")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--worker", choices=sorted(FORMS), help=argparse.SUPPRESS)
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    options = arguments()
    if options.worker:
        work(options.worker, options.seed, options.first, options.flips, options.every_bit)
        return 0
    names = [name for name in FORMS if available(name) and (not options.only or name in options.only)]
    whole = sum(FORMS[name].share for name in names)
    counts = {name: max(1, round(options.flips * FORMS[name].share / whole)) for name in names}
    if options.every_bit:
        counts = dict.fromkeys(names, 1 << 40)
    with ThreadPoolExecutor(options.jobs) as pool:
        tallies = pool.map(lambda name: run_form(name, counts[name], options.seed, options.every_bit), names)
        return int(report(tallies))


if __name__ == "__main__":
    sys.exit(main())
