"""The package as it is installed: light to import, and with its compiled core."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "spsample"

IMPORT_WITHOUT_OPTIONAL = """
import sys
for name in ("torch", "torch_geometric", "mpi4py", "cupy", "sklearn", "matplotlib"):
    sys.modules[name] = None  # any import of it raises ImportError
import spsample
assert "scipy" not in sys.modules
print(spsample.__version__)
"""


def test_imports_without_optional_packages():
    done = subprocess.run([sys.executable, "-c", IMPORT_WITHOUT_OPTIONAL], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


ROOMS_ON_DEMAND = """
import sys
import spsample as sp
assert "spsample.features" not in sys.modules
print(sp.features.score.__name__, sp.training.Trainer.__name__, sp.errors.InputError.__name__)
assert not hasattr(sp, "nothing")
"""


def test_a_room_is_loaded_when_it_is_asked_for():
    done = subprocess.run([sys.executable, "-c", ROOMS_ON_DEMAND], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["score", "Trainer", "InputError"]


def test_all_rooms_are_there():
    import spsample

    rooms = {path.stem for path in PACKAGE.iterdir() if (path / "__init__.py").exists() or path.stem == "errors"}
    assert {name for name in rooms if not hasattr(spsample, name)} <= {"kernels", "bench"}
    with pytest.raises(AttributeError, match="has no attribute 'room'"):
        _ = spsample.room


def test_core_says_what_it_was_built_with():
    from spsample import _core

    info = _core.build_info()
    assert info["version"] == _core.__version__
    assert info["cxx_standard"] >= 201703
    assert info["max_threads"] >= 1


def test_core_has_the_version_of_the_package():
    import spsample
    from spsample import _core

    assert _core.__version__ == spsample.__version__


def test_docstrings_have_no_sphinx_roles():
    """mkdocstrings shows them as they stand."""
    roles = re.compile(r":[a-z]+(:[a-z]+)?:`")
    found = [
        f"{path.relative_to(PACKAGE)}:{number}: {line.strip()}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if roles.search(line)
    ]
    assert not found
