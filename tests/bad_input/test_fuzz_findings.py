"""What tests/fuzz/fuzz_entry_points.py once found: each now gives a clear error, or works."""

from __future__ import annotations

import gc
import io
import zipfile

import numpy as np
import pytest
import scipy.sparse

import spsample as sp
from spsample.errors import DataError, DTypeError, InputError


def archive(**changes):
    """A data set with vertices 0 -> 1 -> 2 as the bytes of an .npz file."""
    arrays = {"indptr": np.array([0, 0, 1, 2]), "indices": np.array([0, 1]), "y": np.array([0, 1, 0])}
    arrays |= {f"{part}_idx": np.array([v]) for v, part in enumerate(("train", "val", "test"))}
    buffer = io.BytesIO()
    np.savez(buffer, **{**arrays, **changes})
    return buffer.getvalue()


def rewritten(raw, change):
    """The archive with every member's bytes changed, its checksums right again."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(raw)) as source, zipfile.ZipFile(out, "w") as target:
        for name in source.namelist():
            target.writestr(name, change(name, source.read(name)))
    return out.getvalue()


def flipped(raw, signature, offset, value):
    """With one byte of the first record that begins with `signature` changed."""
    at = raw.index(signature) + offset
    return raw[:at] + bytes([value]) + raw[at + 1 :]


DAMAGED = {
    "header of an array": lambda raw: rewritten(
        raw, lambda name, content: content.replace(b"{'descr'", b"{('descr'", 1)
    ),
    "a member that is no array": lambda raw: rewritten(
        raw, lambda name, content: b"garbage" if name == "indices.npy" else content
    ),
    "flags of a member": lambda raw: flipped(raw, b"PK\x01\x02", 8, 0x20),
    "encrypted": lambda raw: flipped(raw, b"PK\x01\x02", 8, 0x01),
    "method of compression": lambda raw: flipped(raw, b"PK\x01\x02", 10, 77),
    "version of the archive": lambda raw: flipped(raw, b"PK\x01\x02", 6, 87),
    "truncated": lambda raw: raw[: len(raw) // 2],
    "empty": lambda raw: b"",
}


@pytest.mark.parametrize("damage", DAMAGED.values(), ids=DAMAGED)
def test_damaged_archives(damage, tmp_path):
    path = tmp_path / "damaged.npz"
    path.write_bytes(damage(archive()))
    with pytest.raises(DataError) as caught:
        sp.load_dataset(str(path))
    assert caught.value.argument == str(path)
    del caught
    gc.collect()  # a file left open would be reported here, as an unraisable ResourceWarning


def test_the_archive_itself_is_sound(tmp_path):
    path = tmp_path / "sound.npz"
    path.write_bytes(rewritten(archive(), lambda name, content: content))
    assert sp.load_dataset(str(path)).graph.num_edges == 2


@pytest.mark.parametrize("spec", [None, 3, b"digits", scipy.sparse.coo_array((2, 2)), ["digits"]], ids=repr)
def test_data_sets_by_something_else_than_a_name(spec):
    with pytest.raises(DTypeError, match=r"dataset: got an object of type .*; expected 'digits'"):
        sp.load_dataset(spec)


@pytest.mark.parametrize("split", [[], np.zeros(0), 1.0, "0", None, True], ids=repr)
def test_splits_that_are_no_integer(split, tmp_path):
    path = tmp_path / "sound.npz"
    path.write_bytes(archive())
    for spec in (str(path), "rmat:3,2"):
        with pytest.raises(DTypeError, match=r"split: got "):
            sp.load_dataset(spec, split=split)


def test_coo_matrices_whose_arrays_differ_in_length():
    matrix = scipy.sparse.coo_array((np.ones(3), ([0, 1, 1], [1, 0, 1])), shape=(2, 2))
    matrix.data = matrix.data[:2]
    with pytest.raises(InputError, match=r"matrix\.data: got length 2; expected length 3"):
        sp.Graph.from_scipy(matrix)


@pytest.mark.filterwarnings("ignore:.* array has non-integer dtype")
@pytest.mark.parametrize("kind", ["csr", "csc", "bsr"])
def test_matrices_with_arrays_of_text(kind):
    for name in ("indptr", "indices"):
        matrix = scipy.sparse.random_array((4, 4), density=0.5, format=kind, rng=np.random.default_rng(0))
        setattr(matrix, name, getattr(matrix, name).astype("S2"))
        with pytest.raises(InputError, match=r"matrix.*: got "):
            sp.Graph.from_scipy(matrix)


def test_shuffle_by_small_integer_types():
    np.testing.assert_array_equal(sp.shuffle(np.int8(9), np.int8(3), np.uint8(2)), sp.shuffle(9, 3, 2))
