"""Everything that is public has a case in tests/fuzz, and the cases run."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from public import NO_CASE, all_cases, public_objects, without_a_case


def test_every_public_name_has_a_case() -> None:
    assert without_a_case() == []


def test_what_needs_no_case_is_public() -> None:
    assert {name.rpartition(".")[2] for name in public_objects()} >= NO_CASE


def test_a_new_public_name_would_be_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    import spsample.data

    monkeypatch.setattr(spsample.data, "__all__", [*spsample.data.__all__, "new_call"])
    monkeypatch.setattr(spsample.data, "new_call", lambda: None, raising=False)
    assert without_a_case() == ["spsample.data.new_call"]


def test_cases_have_names_of_their_own() -> None:
    assert len(all_cases()) > 40
