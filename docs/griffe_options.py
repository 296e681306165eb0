"""The pages of the Python interface show `Annotated[int, Option("Text.")]` as an int with that text."""

from __future__ import annotations

import ast
from typing import Any

import griffe


class Options(griffe.Extension):
    """Takes the description of a field that is an option from its declaration."""

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: Any) -> None:
        annotation = attr.annotation
        if not isinstance(annotation, griffe.ExprSubscript) or annotation.canonical_name != "Annotated":
            return
        kind, declared = annotation.slice.elements
        attr.annotation = kind
        attr.docstring = griffe.Docstring(description(declared), parent=attr)


def description(declared: griffe.ExprCall) -> str:
    """The help text; choices and the meaning of None where they are written out."""
    text, *others = declared.arguments
    said = {one.name: str(one.value) for one in others if isinstance(one, griffe.ExprKeyword)}
    sentences = [ast.literal_eval(str(text))]
    if said.get("choices", "").startswith("("):
        sentences.append(f"One of {', '.join(map(repr, ast.literal_eval(said['choices'])))}.")
    if "unset" in said:
        sentences.append(f"None: {ast.literal_eval(said['unset'])}.")
    return " ".join(sentences)
