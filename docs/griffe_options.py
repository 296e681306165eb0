"""How the pages of the Python interface show what griffe does not know.

`Annotated[int, Option("Text.")]` is an int with that text; what is computed lazily is the attribute that it is.
"""

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
        if not isinstance(declared, griffe.ExprCall):  # of `Option`, or of it with a panel
            return
        attr.annotation = kind
        attr.docstring = griffe.Docstring(description(declared), parent=attr)


class Lazily(griffe.Extension):
    """Takes methods that `spsample.common.lazily` decorates for properties."""

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        for name, member in list(cls.members.items()):
            if isinstance(member, griffe.Function) and any(map(is_lazily, member.decorators)):
                places = {"lineno": member.lineno, "endlineno": member.endlineno}
                attribute = griffe.Attribute(name, annotation=member.returns, docstring=member.docstring, **places)
                attribute.labels |= member.labels | {"property"}
                cls.set_member(name, attribute)


def is_lazily(decorator: griffe.Decorator) -> bool:
    """Whether this is the project's own decorator."""
    return decorator.callable_path == "spsample.common.lazily.lazily"


def description(declared: griffe.ExprCall) -> str:
    """The help text; choices and the meaning of None where they are written out."""
    text, *others = declared.arguments
    said = {one.name: one.value for one in others if isinstance(one, griffe.ExprKeyword)}
    sentences = [quoted(text)]
    choices = said.get("choices")
    if isinstance(choices, griffe.ExprTuple):
        sentences.append(f"One of {', '.join(repr(quoted(choice)) for choice in choices.elements)}.")
    if "unset" in said:
        sentences.append(f"None: {quoted(said['unset'])}.")
    return " ".join(sentences)


def quoted(expression: griffe.Expr | str) -> str:
    """A string of a declaration; griffe reads one that could be an expression as such, without its quotes."""
    text = str(expression)
    return str(ast.literal_eval(text)) if text[0] in "'\"" else text
