"""One page of results: an HTML file that needs no network, with tables, plots, and the line of each number."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from textwrap import wrap
from typing import NamedTuple

import pandas as pd
import plotly.express as px
import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from .case import Case, Plot, declared
from .records import read_lines
from .tables import label, missing_in, number, shown, table_of

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; color: #222 }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 13px }
td, th { padding: .2rem .6rem; border-bottom: 1px solid #ddd; text-align: right }
th { text-align: left } td:first-child { text-align: left } .scroll { overflow-x: auto }
pre { font-size: 12px; white-space: pre-wrap; overflow-wrap: anywhere; background: #f6f6f6; padding: .5rem }
"""


class Section(NamedTuple):
    """A part of the page: a case's results, or a figure of a paper."""

    title: str
    text: str
    table: pd.DataFrame
    parameters: Sequence[str]
    plots: Sequence[Plot]


def section_of(name: str, table: pd.DataFrame) -> Section:
    """That of a case."""
    case: Case = declared("cases", name)
    text = f"{case.about} {case.claim}"
    if case.baselines:
        text += f" Ratios are to {' or else '.join(case.baselines)}, round by round."
    return Section(name, text, table, tuple(case.parameters), case.plots)


def write_report(paths: Sequence[Path], out: Path, sections: Sequence[Section] = (), title: str = "spsample") -> None:
    """Write the page of some results files; without sections one for each case."""
    if not sections:
        whole = table_of(paths)
        cases = [] if whole.empty else whole.groupby("case", sort=False)
        sections = [section_of(str(name), rows.dropna(axis=1, how="all")) for name, rows in cases]
    parts = [f"<h1>{html.escape(title)}</h1>", *_machines(paths)]
    for section in sections:
        parts += _section_html(section)
    parts += [f"<p>{html.escape(words)}</p>" for words in missing_in(paths)]
    parts.append("<h2>Lines</h2>")
    parts += [_line_html(path) for path in paths]
    head = f"<meta charset='utf-8'><title>{html.escape(title)}</title><style>{_STYLE}</style>"
    page = f"<!doctype html>{head}<script>{get_plotlyjs()}</script><body>{''.join(parts)}</body>"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(page, encoding="utf-8")


def _machines(paths: Iterable[Path]) -> list[str]:
    facts = []
    lines = (one.line for path in paths for one in read_lines(path))
    for line in (line for line in lines if line["kind"] == "machine"):
        caches = ", ".join(f"{name} {size >> 10} KiB" for name, size in line["caches"].items())
        words = f"{line['processor']}, {line.get('cores')} cores, {line['instruction_set']}, caches {caches}"
        words += f"; {line.get('system')}"
        words += f"; {line['gpu']}" if line.get("gpu") else ""
        facts.append(f"{words}; spsample {line['version']} {line['commit']}")
    return [f"<p>{html.escape(fact)}</p>" for fact in dict.fromkeys(facts)]


def _section_html(section: Section) -> list[str]:
    parts = [f"<h2>{html.escape(section.title)}</h2>", f"<p>{html.escape(section.text)}</p>"]
    fixed = [name for name in (*section.parameters, "ranks") if name in section.table]
    fixed = [name for name in dict.fromkeys(fixed) if section.table[name].nunique() == 1]
    same = ", ".join(f"{name.replace('_', ' ')} {number(section.table[name].dropna().iloc[0])}" for name in fixed)
    parts.append(f"<p>All rows: {html.escape(same)}.</p>")
    measured = section.table[section.table["problem"] == ""]
    for plot in section.plots:
        figure = figure_of(measured, plot)
        if figure is not None:
            parts.append(figure.to_html(full_html=False, include_plotlyjs=False))
    picked = shown(section.table, section.parameters)
    picked["line"] = [f'<a href="#{where}">{where}</a>' for where in picked["line"].map(html.escape)]
    for column in picked.columns.drop("line"):
        picked[column] = picked[column].map(html.escape)
    picked.columns = picked.columns.map(html.escape)
    return [*parts, "<div class='scroll'>", picked.to_html(index=False, escape=False, border=0), "</div>"]


def figure_of(table: pd.DataFrame, plot: Plot) -> go.Figure | None:
    """The picture; None where nothing of it was measured."""
    table = table[table["side"].str.startswith(plot.only)]
    figures = [name for name in plot.figures if name in table and table[name].notna().any()]
    if not figures:
        return None
    table, x = _put_together(table, plot.x)
    table, color = _put_together(table, plot.color)
    facet = plot.facet if plot.facet in table and table[plot.facet].nunique() > 1 else None
    how = {"x": x, "facet_col": facet}
    if not isinstance(plot.y, str):
        kept = [x, *([facet] if facet else [])]
        long = table[[*kept, *figures]].melt(kept, figures, "part", "ms")
        drawn = px.bar(long.astype({x: str}), y="ms", color="part", **how)
    elif plot.kind == "line":
        log = plot.logarithmic
        drawn = px.line(table.sort_values(x), y=plot.y, color=color, markers=True, log_x=log, log_y=log, **how)
    else:
        drawn = px.bar(table.astype({x: str}), y=plot.y, color=color, barmode="group", log_y=plot.logarithmic, **how)
    notes = table["note"].dropna().unique()[:2] if "note" in table else []
    for place, note in enumerate(notes):
        words = "<br>".join(wrap(html.escape(note), 150))
        how = {"xref": "paper", "yref": "paper", "x": 0, "showarrow": False, "align": "left", "font_size": 10}
        drawn.add_annotation(text=words, y=-0.45 - 0.5 * place, yanchor="top", **how)
    below = 180 * len(notes)
    drawn.update_layout(title=plot.title, template="simple_white", legend_title_text="")
    drawn.update_layout(height=420 + below, margin_b=80 + below)
    return drawn


def _put_together(table: pd.DataFrame, names: str | tuple[str, ...]) -> tuple[pd.DataFrame, str]:
    """The table with a column of the names that vary, and that column."""
    if isinstance(names, str):
        return table, names
    varied = [name for name in names if name in table and table[name].nunique() > 1] or [names[0]]
    label = ", ".join(varied)
    words = table[varied].astype(str).agg(", ".join, axis=1) if len(varied) > 1 else table[varied[0]]
    return table.assign(**{label: words}), label


def _line_html(path: Path) -> str:
    name = html.escape(label(path))
    lines = [
        f'<pre id="{name}:{number}">{name}:{number} {html.escape(json.dumps(line))}</pre>'
        for _, number, line in read_lines(path)
    ]
    return f"<details><summary>{name}</summary>{''.join(lines)}</details>"
