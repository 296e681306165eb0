"""What every refusal of bad input must be. Lets the tests of this folder import its modules by name."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from spsample.errors import SpSampleError

sys.path.insert(0, str(Path(__file__).resolve().parent))


@pytest.fixture
def assert_refused():
    """Call, and check the error: its exact type, the argument it names, its form, and the words it must contain."""

    def check(call, kind, argument, words):
        with pytest.raises(SpSampleError) as caught:
            call()
        error = caught.value
        assert type(error) is kind
        assert error.argument == argument
        assert str(error).startswith(f"{argument}: got ")
        assert words in str(error)
        assert "; expected " in str(error)

    return check
