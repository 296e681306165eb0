"""Every Python code block of README.md and docs/ runs.

The blocks of one page run in order in one namespace, in a folder of their own. A block that starts with `>>>`
is a doctest; any other is executed. A block under the line `<!-- not run: REASON -->` is left out. A page with the line
`<!-- needs a GPU -->` runs on the emulated device.
"""

from __future__ import annotations

import doctest
import re
from pathlib import Path
from typing import NamedTuple

import pytest
from emulated_backend import emulated

__all__ = ["emulated"]

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(
    r"^(?P<indent>[ ]*)```(?:python|py|pycon)\b[^\n]*\n(?P<code>.*?)^(?P=indent)```[ ]*$",
    re.DOTALL | re.MULTILINE,
)
NOT_RUN = re.compile(r"<!-- not run: .+ -->\s*\Z")
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


class Block(NamedTuple):
    line: int  # of its first line of code, from 1
    code: str


def code_blocks(text: str) -> list[Block]:
    """Return the Python blocks of a Markdown page that are to be run."""
    blocks = []
    for match in FENCE.finditer(text):
        if NOT_RUN.search(text[: match.start()]):
            continue
        indent = len(match["indent"])
        code = "".join(line[indent:] if line.strip() else "\n" for line in match["code"].splitlines(True))
        blocks.append(Block(text.count("\n", 0, match.start("code")) + 1, code))
    return blocks


def run_block(block: Block, page: str, namespace: dict[str, object]) -> None:
    """Execute one block, or check it where it is a doctest."""
    if not block.code.lstrip().startswith(">>>"):
        exec(compile("\n" * (block.line - 1) + block.code, page, "exec"), namespace)
        return
    test = doctest.DocTestParser().get_doctest(block.code, namespace, page, page, block.line - 1)
    report: list[str] = []
    results = doctest.DocTestRunner(optionflags=FLAGS).run(test, out=report.append, clear_globs=False)
    namespace.update(test.globs)  # the parser copied it
    assert results.failed == 0, "".join(report)


PAGES = [path for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))] if path.is_file()]


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if code_blocks(page.read_text("utf-8"))],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_code_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest):
    monkeypatch.chdir(tmp_path)
    if "<!-- needs a GPU -->" in page.read_text("utf-8"):
        request.getfixturevalue("emulated")
    namespace: dict[str, object] = {"__name__": "__page__"}
    for block in code_blocks(page.read_text("utf-8")):
        run_block(block, str(page.relative_to(ROOT)), namespace)


PAGE = """a
```python
x = 1
```
<!-- not run: needs a GPU -->
```python
1 / 0
```
```bash
ls
```
- b

  ```pycon
  >>> x
  1
  ```
"""


def test_finds_and_skips_blocks():
    assert code_blocks(PAGE) == [Block(3, "x = 1\n"), Block(15, ">>> x\n1\n")]
