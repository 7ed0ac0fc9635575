"""Render a template of files/<role>/; an unknown variable is an error, never an empty text."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

FILES = Path(__file__).resolve().parents[2] / "files"


@cache
def _environment(role: str) -> Environment:
    return Environment(
        loader=FileSystemLoader(FILES / role),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # noqa: S701 - configuration files, not HTML
    )


def render(role: str, template: str, values: Mapping[str, object]) -> str:
    """The text of files/<role>/<template>.j2 with `values`."""
    return _environment(role).get_template(f"{template}.j2").render(values)
