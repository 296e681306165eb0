"""What README.md and the pages of the site look like, as far as text shows it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
RECORDS = sorted((DOCS / "adr").glob("0*.md"))[1:]  # after the template
PAGES = [ROOT / "README.md", *(path for path in sorted(DOCS.rglob("*.md")) if path not in RECORDS)]
FENCED = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE)
OUTSIDE = re.compile(r"\n\n {1,3}(?!\d+\. |[-*] )[^ \n][^\n]*")
SWALLOWED = re.compile(r"\n\n {4}[^\n]+(?:\n +[^\n]+)*\n(?:\d+\.|-) [^\n]*")


def nav() -> str:
    """The navigation of the site, as it is written."""
    return (ROOT / "mkdocs.yml").read_text("utf-8").split("\nnav:\n")[1]


def test_what_is_computed_lazily_is_an_attribute():
    griffe = pytest.importorskip("griffe", reason="makes the pages of the Python interface")
    extensions = griffe.load_extensions(str(DOCS / "griffe_options.py"))
    module = griffe.load("spsample.sampling.bulk", search_paths=[str(ROOT)], extensions=extensions)
    layers = module["MiniBatch.layers"]
    assert layers.is_attribute
    assert (str(layers.annotation), layers.labels) == ("list[Layer]", {"property"})
    assert layers.docstring.value.startswith("A^1 .. A^L")


def test_pages_lie_in_four_groups():
    groups = [line for line in nav().splitlines() if line.startswith("  - ")]
    assert groups == ["  - Start:", "  - How-to:", "  - How it works:", "  - Reference:"]


def test_every_page_is_reached():
    listed = set(re.findall(r"[\w/-]+\.md", nav()))
    there = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md") if path.parent.name not in ("adr", "records")}
    assert listed == there | {"adr/index.md"}


def test_every_record_is_listed():
    listed = re.findall(r"\((\w+\.jsonl)\)", (DOCS / "records" / "index.md").read_text("utf-8"))
    assert sorted(listed) == sorted(path.name for path in (DOCS / "records").glob("*.jsonl"))


def test_records_have_short_titles():
    index = (DOCS / "adr" / "index.md").read_text("utf-8")
    for record in RECORDS:
        number, title = record.read_text("utf-8").splitlines()[0].removeprefix("# ").split(". ", 1)
        assert record.name.startswith(number)
        assert len(title.split()) <= 5
        assert f"[{number}. {title}]({record.name})" in index


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_lists_are_not_broken(page):
    """A second paragraph of an entry begins with four blanks, else it ends the list; an empty line follows it."""
    text = FENCED.sub("", page.read_text("utf-8"))
    assert not OUTSIDE.findall(text)
    assert not SWALLOWED.findall(text)
