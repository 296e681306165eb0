"""The tables of options in the documentation are what the commands say of themselves."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_page_is_what_is_written():
    spec = spec_from_file_location("option_tables", DOCS / "option_tables.py")
    script = module_from_spec(spec)
    spec.loader.exec_module(script)
    text = script.PAGE.read_text("utf-8")
    assert script.page(text) == text, "run python docs/option_tables.py"
