"""Data sets by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from spsample.data.dataset import Dataset
from spsample.data.digits import digits
from spsample.data.npz import load_npz
from spsample.data.planted import planted
from spsample.data.rmat import rmat
from spsample.errors import DTypeError, InputError
from spsample.store.validation import require_int

__all__ = ["load_dataset"]


@dataclass(frozen=True)
class _Generator:
    """A generator that is called by ``name:ARG,ARG,...``; `words` are its parameters' names in that form."""

    make: Callable[..., Dataset]
    form: str
    types: tuple[type, ...]
    required: int
    words: dict[str, str]


_GENERATORS = {
    "rmat": _Generator(
        make=rmat,
        form="rmat:SCALE,EDGE_FACTOR",
        types=(int, int),
        required=2,
        words={"scale": "SCALE", "edge_factor": "EDGE_FACTOR"},
    ),
    "planted": _Generator(
        make=planted,
        form="planted:NODES[,DEGREE[,CLASSES[,NOISE]]]",
        types=(int, int, int, float),
        required=1,
        words={"num_nodes": "NODES", "degree": "DEGREE", "num_classes": "CLASSES", "noise": "NOISE"},
    ),
}
_FORMS = "'digits', a path ending in .npz, " + " or ".join(g.form for g in _GENERATORS.values())


def load_dataset(spec: str, *, split: int = 0, random_seed: int = 0) -> Dataset:
    """Load or generate a data set.

    Parameters
    ----------
    spec
        ``"digits"``; a path that ends in ``.npz`` (`load_npz` has its form); ``"rmat:SCALE,EDGE_FACTOR"`` (`rmat`);
        ``"planted:NODES[,DEGREE[,CLASSES[,NOISE]]]"`` (`planted`).
    split
        Which of a file's published splits; the others have one, number 0.
    random_seed
        Seed of the generators; files and the digits do not depend on it.

    Raises
    ------
    InputError
        If the name or an argument is not understood, or there is no such split.
    DataError
        If a file cannot be used.
    MissingDependencyError
        If the digits are wanted and scikit-learn is not installed.

    Examples
    --------
    >>> load_dataset("planted:300,5,3")
    Dataset('planted', 300 vertices, 1,500 edges, 3 features, 3 classes, split 180/60/60)
    """
    if not isinstance(spec, str):
        raise DTypeError(argument="dataset", given=f"an object of type {type(spec).__name__}", expected=_FORMS)
    if spec.endswith(".npz"):
        return load_npz(spec, split)
    if require_int("split", split) != 0:
        raise InputError(argument="split", given=str(split), expected=f"0, for {spec!r} has one split")
    if spec == "digits":
        return digits()
    name, _, arguments = spec.partition(":")
    if name not in _GENERATORS:
        raise InputError(argument="dataset", given=repr(spec), expected=_FORMS)
    generator = _GENERATORS[name]
    values = _parse(spec, arguments, generator)
    try:
        return generator.make(*values, random_seed=random_seed)
    except InputError as error:
        if error.argument not in generator.words:
            raise
        argument = f"{name}:{generator.words[error.argument]}"  # as the caller wrote it
        raise InputError(argument=argument, given=error.given, expected=error.expected, hint=error.hint) from None


def _parse(spec: str, arguments: str, generator: _Generator) -> list[float]:
    words = arguments.split(",") if arguments else []
    if not generator.required <= len(words) <= len(generator.types):
        raise InputError(argument="dataset", given=repr(spec), expected=generator.form)
    try:
        return [convert(word) for convert, word in zip(generator.types, words, strict=False)]
    except ValueError as error:
        raise InputError(argument="dataset", given=f"{spec!r} ({error})", expected=generator.form) from None
