"""The exception tree: what each one is, what it says, and that it survives pickling."""

from __future__ import annotations

import copy
import pickle
import sys

import pytest

from spsample import errors

FIELDS = {"argument": "seeds", "given": "-3 at position 17", "expected": "vertex ids in [0, 2708)"}


@pytest.mark.parametrize(
    ("name", "builtin"),
    [
        ("InputError", ValueError),
        ("DTypeError", ValueError),
        ("DTypeError", TypeError),
        ("CapacityError", OverflowError),
        ("DataError", OSError),
        ("MissingDependencyError", ImportError),
        ("BackendError", RuntimeError),
    ],
)
def test_every_exception_is_ours_and_pythons(name, builtin):
    cls = getattr(errors, name)
    assert issubclass(cls, errors.SpSampleError)
    assert issubclass(cls, builtin)


def test_dtype_error_is_an_input_error():
    assert issubclass(errors.DTypeError, errors.InputError)


def test_all_names_are_exported():
    public = {name for name, value in vars(errors).items() if isinstance(value, type) and name[0] != "_"}
    assert public - {"Any"} == set(errors.__all__)


@pytest.mark.parametrize("cls", [errors.InputError, errors.DTypeError, errors.CapacityError, errors.DataError])
def test_message_and_attributes(cls):
    error = cls(**FIELDS)
    assert str(error) == "seeds: got -3 at position 17; expected vertex ids in [0, 2708)"
    assert (error.argument, error.given, error.expected, error.hint) == (*FIELDS.values(), "")
    hinted = cls(**FIELDS, hint="Count from 0.")
    assert str(hinted) == "seeds: got -3 at position 17; expected vertex ids in [0, 2708). Count from 0."


def test_missing_dependency_names_the_extra():
    error = errors.MissingDependencyError(package="torch", needed_for="mb.to_pyg()", extra="pyg")
    assert 'pip install "spsample[pyg]"' in str(error)
    assert "mb.to_pyg()" in str(error)
    assert (error.package, error.needed_for, error.extra) == ("torch", "mb.to_pyg()", "pyg")
    assert str(errors.MissingDependencyError(package="dgl", needed_for="x")).endswith("pip install dgl")
    told = errors.MissingDependencyError(package="a_b", needed_for="x", install="--no-build-isolation a-b")
    assert str(told).endswith("pip install --no-build-isolation a-b")


@pytest.mark.parametrize(
    "error",
    [
        errors.InputError(**FIELDS),
        errors.DTypeError(**FIELDS, hint="Count from 0."),
        errors.CapacityError(**FIELDS),
        errors.DataError(**FIELDS),
        errors.MissingDependencyError(package="torch", needed_for="mb.to_pyg()", extra="pyg"),
        errors.BackendError("backend 'cuda' found no GPU"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_exceptions_cross_process_boundaries(error):
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert vars(again) == vars(error)


def test_require_module(monkeypatch):
    assert errors.require_module("pickle", needed_for="x") is pickle
    for name in ("sklearn", "sklearn.datasets"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(errors.MissingDependencyError, match=r"^x needs the package sklearn, .* pip install sklearn$"):
        errors.require_module("sklearn.datasets", needed_for="x")
    with pytest.raises(errors.MissingDependencyError) as caught:
        errors.require_module("sklearn.datasets", needed_for="x", extra="data", package="scikit-learn")
    assert (caught.value.package, caught.value.extra) == ("scikit-learn", "data")
    assert isinstance(caught.value.__cause__, ImportError)
    with pytest.raises(errors.MissingDependencyError, match=r"pip install --no-deps a$"):
        errors.require_module("sklearn", needed_for="x", install="--no-deps a")
