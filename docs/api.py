"""Write docs/api.md from the docstrings of what ``tilewright`` exports: ``make docs``."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pydantic

import tilewright

PAGE = Path(__file__).with_name("api.md")
HEAD = """# The Python interface

What `import tilewright` gives. `make docs` writes this page from the docstrings; docs/your-model.md
shows the calls in their order. Every refusal is a `TilewrightError` with a code (docs/errors.md).
"""


def page() -> str:
    """The whole page: functions first, then classes, each in the order of their names."""
    public = {name: getattr(tilewright, name) for name in tilewright.__all__}
    functions = [
        _function(name, value) for name, value in public.items() if inspect.isroutine(value)
    ]
    classes = [_class(name, value) for name, value in public.items() if inspect.isclass(value)]
    others = [name for name, value in public.items() if isinstance(value, str)]
    ends = [f"## tilewright.{name}\n\nThe version that is installed, as text.\n" for name in others]
    return "\n".join([HEAD, *functions, *classes, *ends])


def _function(name: str, value: Any, prefix: str = "tilewright.", level: str = "##") -> str:
    call = _signature(prefix + name, value)
    return f"{level} {prefix}{name}\n\n```python\n{call}\n```\n\n{_text(value)}\n"


def _class(name: str, value: type) -> str:
    parts = [f"## tilewright.{name}\n\n{_text(value)}\n"]
    for key, member in vars(value).items():
        inner = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        if key.startswith("_") or not inspect.getdoc(inner):
            continue
        if isinstance(inner, property):
            parts.append(f"### {name}.{key}\n\n{_text(inner)}\n")
        elif inspect.isfunction(inner) and not _inherited(inner, value):
            parts.append(_function(key, inner, f"{name}.", "###"))
    return "\n".join(parts)


def _inherited(function: Any, owner: type) -> bool:
    """Whether pydantic made the method, not the class."""
    return issubclass(owner, pydantic.BaseModel) and function.__module__ != owner.__module__


def _signature(name: str, value: Any) -> str:
    """The call: one argument a line where they do not fit into one line; self is left out."""
    signature = inspect.signature(value)
    arguments: list[str] = []
    for key, one in signature.parameters.items():
        if key in ("self", "cls"):
            continue
        if one.kind is one.KEYWORD_ONLY and "*" not in arguments:
            arguments.append("*")
        arguments.append(_argument(one))
    end = (
        ")"
        if signature.return_annotation is signature.empty
        else f") -> {_name(signature.return_annotation)}"
    )
    short = f"{name}({', '.join(arguments)}{end}"
    if len(short) <= 96:
        return short
    return f"{name}(\n" + "".join(f"    {one},\n" for one in arguments) + end


def _argument(one: inspect.Parameter) -> str:
    star = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
    text = f"{star}{one.name}"
    if one.annotation is not one.empty:
        text += f": {_name(one.annotation)}"
    if one.default is not one.empty:
        text += f" = {getattr(one.default, '__name__', None) or repr(one.default)}"
    return text


def _name(annotation: Any) -> str:
    return (
        annotation
        if isinstance(annotation, str)
        else getattr(annotation, "__name__", str(annotation))
    )


def _text(value: Any) -> str:
    """The docstring in Markdown: code in single backticks, indented examples as code."""
    text = inspect.getdoc(value) or ""
    return re.sub(r"``([^`]+)``", r"`\1`", text)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
