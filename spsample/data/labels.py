"""Labels of vertices and sets of training, validation and test vertices, as data sets, files and stores have them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from spsample.errors import InputError
from spsample.store.folder import file_error

_MAX_WHOLE = 2**53


def class_labels(argument: str, y: NDArray[Any], num_nodes: int | None, hint: str = "") -> NDArray[np.int64]:
    """Return labels as integers: floats are taken where they are whole, NaN becomes -1, shape (n, 1) becomes (n,).

    Parameters
    ----------
    argument : str
        What `y` is called in messages.
    y : array (n,) or (n, labels)
        Booleans, integers or floats, from 0 on; -1 or NaN where unlabelled.
    num_nodes : int or None
        Number of vertices, n; None fits no labels.
    hint : str, optional
        What to do, for messages.

    Raises
    ------
    DataError
        If it has another shape or dtype, or a label is no whole number from -1 on.

    Examples
    --------
    >>> class_labels("y", np.array([[2.0], [np.nan], [0.0]]), 3)
    array([ 2, -1,  0])
    """
    if y.ndim not in (1, 2) or len(y) != num_nodes or y.dtype.kind not in "biuf" or y.shape[1:] == (0,):
        expected = f"numbers in {'num_nodes' if num_nodes is None else num_nodes} rows, one per vertex"
        raise file_error(argument, f"labels of dtype {y.dtype} and shape {y.shape}", expected, hint)
    flat = y.reshape(-1) if y.shape[1:] == (1,) else y
    if flat.dtype.kind == "f":
        flat = np.where(np.isnan(flat), -1, flat)
    if flat.dtype.kind != "b":
        bad = (flat < -1) | (flat > _MAX_WHOLE)
        if flat.dtype.kind == "f":
            bad |= np.trunc(flat) != flat
        if bad.any():
            place = np.unravel_index(int(np.argmax(bad)), flat.shape)
            given = f"{flat[place]} at position {', '.join(str(int(i)) for i in place)}"
            raise file_error(argument, given, "whole numbers; from 0 on, or -1 or NaN where unlabelled", hint)
    return flat.astype(np.int64, copy=False)


def num_classes(y: NDArray[Any]) -> int:
    """Return one more than the largest label, or the number of columns of several labels.

    Examples
    --------
    >>> num_classes(np.array([0, 4, -1])), num_classes(np.zeros((3, 2)))
    (5, 2)
    """
    return int(y.shape[1]) if y.ndim == 2 else int(y.max(initial=-1)) + 1


PARTS = ("train", "val", "test")
SPLIT_IDS = tuple(f"{part}_idx" for part in PARTS)
"""Vertex ids, of one split."""
SPLIT_MASKS = tuple(f"{part}_masks" for part in PARTS)
"""Booleans of shape (splits, n)."""
_DISJOINT = "disjoint train, val and test vertices"
_FORMS = ("masks", "mask", "idx")


class Split(TypedDict):
    """The three index sets, as keyword arguments of `Dataset`."""

    train_idx: NDArray[np.int64]
    val_idx: NDArray[np.int64]
    test_idx: NDArray[np.int64]


def split_of(train: NDArray[Any], val: NDArray[Any], test: NDArray[Any]) -> Split:
    """The split of three index sets.

    Examples
    --------
    >>> list(split_of(np.array([0]), np.array([1]), np.array([2])))
    ['train_idx', 'val_idx', 'test_idx']
    """
    return {"train_idx": train, "val_idx": val, "test_idx": test}


def random_split(permutation: NDArray[np.int64], train: float = 0.6, val: float = 0.2) -> Split:
    """Cut a permutation of the vertices into ``train_idx``, ``val_idx`` and ``test_idx``, each ascending.

    Examples
    --------
    >>> parts = random_split(np.arange(10)[::-1])
    >>> parts["val_idx"].tolist()
    [2, 3]
    """
    n = len(permutation)
    first, second = round(n * train), round(n * (train + val))
    return split_of(*(np.sort(part) for part in (permutation[:first], permutation[first:second], permutation[second:])))


def repeated(ids: NDArray[Any]) -> int | None:
    """The smallest id that occurs more than once.

    Examples
    --------
    >>> repeated(np.array([3, 2, 5, 3, 2]))
    2
    >>> repeated(np.array([1, 0])) is None
    True
    """
    ordered = np.sort(ids)
    places = np.flatnonzero(ordered[1:] == ordered[:-1])
    return int(ordered[places[0]]) if len(places) else None


def split_arrays(argument: str, names: Collection[str]) -> dict[str, str]:
    """Return the names of the arrays that are the sets of a split, by their part.

    The three are called ``train_masks``, ``train_mask`` or ``train_idx``, and alike; ``valid`` is another word for
    ``val``. Empty where no name is such a one; an array that is missing has the name that it should have.

    Raises
    ------
    DataError
        If two are validation vertices, or a split is there in two forms; it names `argument`.

    Examples
    --------
    >>> split_arrays("arrays", ["x", "train_mask", "valid_mask", "test_mask"])
    {'train': 'train_mask', 'val': 'valid_mask', 'test': 'test_mask'}
    """
    splits = []
    for form in _FORMS:
        held = {part: f"{part}_{form}" for part in PARTS}
        if (valid := f"valid_{form}") in names:
            if held["val"] in names:
                raise file_error(argument, f"both {held['val']} and {valid}", "one of the two")
            held["val"] = valid
        if any(name in names for name in held.values()):
            splits.append(held)
    if [split["test"] for split in splits] == ["test_masks", "test_idx"]:
        return splits[0]  # ids of the first of several splits, as published files have them
    if len(splits) > 1:
        given = " and ".join(next(name for name in split.values() if name in names) for split in splits)
        raise file_error(argument, given, "a split in one form")
    return splits[0] if splits else {}


def named_splits(argument: str, arrays: Mapping[str, Any], num_nodes: int) -> dict[str, NDArray[Any]]:
    """Return the splits among some arrays, as a store names and shapes them; `split_arrays` has their names.

    Parameters
    ----------
    argument : str
        Where the arrays are from, for messages.
    arrays : mapping of str to array
        ``_idx``: vertex ids. ``_mask``: (n,), or (n, splits) as PyG has it. ``_masks``: (splits, n), or (n,).
    num_nodes : int
        Number of vertices, n.

    Returns
    -------
    dict of str to array
        Of `SPLIT_IDS`, int64; or of `SPLIT_MASKS`, bool of shape (splits, n); empty where there is no split.

    Raises
    ------
    DataError
        If one of the three sets is missing, there are two of one, an array does not fit, or a vertex is in two sets.

    Examples
    --------
    >>> masks = {"train_mask": np.array([1, 0], bool), "valid_mask": np.array([0, 1], bool)}
    >>> named_splits("arrays", masks | {"test_mask": np.zeros(2, bool)}, 2)["val_masks"]
    array([[False,  True]])
    """
    names = split_arrays(argument, arrays)
    for name in names.values():
        if name not in arrays:
            given = f"no array {name!r}, but {next(n for n in names.values() if n in arrays)!r}"
            raise file_error(argument, given, f"all of {', '.join(names.values())}, or none")
    if not names:
        return {}
    held = {part: np.asarray(arrays[name]) for part, name in names.items()}
    if names["train"].endswith("_idx"):
        ids = {f"{part}_idx": _ids(argument, names[part], array, num_nodes) for part, array in held.items()}
        vertex = repeated(np.concatenate([*ids.values()]))
        if vertex is not None:
            sets = [name for name, array in ids.items() if vertex in array]
            where = f"more than once in {sets[0]}" if len(sets) == 1 else f"in {' and '.join(sets)}"
            raise file_error(argument, f"vertex {vertex} {where}", _DISJOINT)
        return ids
    masks = {part: _mask(argument, names[part], array, num_nodes) for part, array in held.items()}
    for part, mask in masks.items():
        first: Any = arrays[f"{part}_idx"] if f"{part}_idx" in arrays else np.flatnonzero(mask[0])
        if not np.array_equal(np.flatnonzero(mask[0]), np.sort(first)):
            given = f"{names[part]} and {part}_idx, which differ"
            raise file_error(argument, given, "a split in one form, or ids of the first mask")
    splits = max(len(mask) for mask in masks.values())
    whole = {
        f"{part}_masks": np.tile(mask, (splits, 1)) if held[part].ndim == 1 else mask for part, mask in masks.items()
    }
    _check_masks(argument, whole)
    return whole


def numbered_split(argument: str, arrays: Mapping[str, Any], num_nodes: int, split: int) -> tuple[int, Split]:
    """Return the number of splits in some arrays, and one of them; it is empty where there is none.

    Raises
    ------
    DataError
        As `named_splits`.
    InputError
        If there is no split of that number.

    Examples
    --------
    >>> arrays = {"train_idx": np.array([0]), "val_idx": np.array([2]), "test_idx": np.array([1])}
    >>> numbered_split("arrays", arrays, 3, split=0)[1]["val_idx"]
    array([2])
    """
    splits = named_splits(argument, arrays, num_nodes)
    masks = [splits[name] for name in SPLIT_MASKS if name in splits]
    count = len(masks[0]) if masks else 1
    if not 0 <= split < count:
        raise InputError(argument="split", given=str(split), expected=f"an integer in [0, {count}) for {argument}")
    if masks:
        return count, split_of(*(np.flatnonzero(mask[split]) for mask in masks))
    return count, split_of(*(splits.get(name, np.empty(0, np.int64)) for name in SPLIT_IDS))


def _check_masks(argument: str, masks: Mapping[str, NDArray[np.bool_]]) -> None:
    counts = [len(mask) for mask in masks.values()]
    if len(set(counts)) > 1:
        raise file_error(argument, f"{', '.join(map(str, counts))} splits in {', '.join(masks)}", "as many in each")
    for split, (train, val, test) in enumerate(zip(*masks.values(), strict=True)):
        shared = (train & val) | (test & (train | val))
        if shared.any():
            vertex = int(np.argmax(shared))
            names = " and ".join(name for name, mask in masks.items() if mask[split, vertex])
            raise file_error(argument, f"vertex {vertex} in {names} of split {split}", _DISJOINT)


def _mask(argument: str, name: str, array: NDArray[Any], num_nodes: int) -> NDArray[np.bool_]:
    """A mask of shape (splits, n)."""
    rows = array[None] if array.ndim == 1 else array.T if name.endswith("_mask") else array
    is_mask = array.dtype == np.bool_ or (array.dtype.kind in "iu" and bool(((array == 0) | (array == 1)).all()))
    if not is_mask or rows.ndim != 2 or rows.shape[1] != num_nodes:
        shape = f"({num_nodes}, splits)" if name.endswith("_mask") else f"(splits, {num_nodes})"
        given = f"{name} of dtype {array.dtype} and shape {array.shape}"
        raise file_error(argument, given, f"bool of shape ({num_nodes},) or {shape}")
    return np.ascontiguousarray(rows, dtype=np.bool_)


def _ids(argument: str, name: str, array: NDArray[Any], num_nodes: int) -> NDArray[np.int64]:
    expected = f"a vector of vertex ids in [0, {num_nodes})"
    if (array.dtype.kind not in "iu" and array.size) or array.ndim != 1:
        raise file_error(argument, f"{name} of dtype {array.dtype} and shape {array.shape}", expected)
    bad = (array < 0) | (array >= num_nodes)
    if bad.any():
        at = int(np.argmax(bad))
        raise file_error(argument, f"{name} with {array[at]} at position {at}", expected)
    return array.astype(np.int64, copy=False)
