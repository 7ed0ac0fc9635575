"""Write the generated pages of docs/; refresh them all with `python -m tests.docs_reference`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import AfterValidator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from deploys.commands.drift import parser as drift_parser
from deploys.commands.upgrade import parser as upgrade_parser
from inventory import model, words
from inventory.model import Cluster
from inventory.spec import Spec
from lab.cli import build_parser as lab_parser
from lab.faults import render_table
from tests.monitoring.live_alerts import live_alerts_table
from validation.cli import parser as validate_parser
from validation.registry import render_page

DOCS = Path(__file__).resolve().parents[1] / "docs"
BEGIN = "<!-- generated: python -m tests.docs_reference -->"
END = "<!-- end of what is generated -->"
_KINDS: dict[Callable[..., str], str] = {
    words.host_name: "host name",
    words.account_name: "account name",
    words.address: "IPv4 address",
    words.cidr: "IPv4 network",
    words.absolute: "absolute path",
    words.own_file: "file of yours",
    words.private_key_file: "private key file",
    words.public_key: "public key",
    words.server_name: "server's name",
    words.index_url: "https address",
    words.web_address: "http(s) address",
    words.mail_address: "mail address",
    words.directory_url: "ldaps address",
    words.one_line_text: "text",
}
_PLAIN = {int: "whole number", float: "number", bool: "True or False", str: "text", type(None): "None"}


@contextmanager
def _narrow() -> Iterator[None]:
    """argparse folds help by the terminal's width: always the same one here."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "100"
    try:
        yield
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before


def reference_page() -> str:
    """docs/reference.md: what the programs' own --help prints."""
    with _narrow():
        validate, lab = validate_parser().format_help(), lab_parser().format_help()
        drift, upgrade = drift_parser().format_help(), upgrade_parser().format_help()
    return f"""# Reference of the commands

Written by `python -m tests.docs_reference` from the programs themselves.

## validate-cluster

```text
{validate.strip()}
```

## bin/drift

```text
{drift.strip()}
```

## bin/upgrade

```text
{upgrade.strip()}
```

## bin/lab

```text
{lab.strip()}
```

## Faults that `bin/lab fault` puts in

{render_table()}
"""


def parts() -> list[type[Spec]]:
    """Cluster first, then the others in the order of the model's file."""
    return [Cluster, *(part for part in _own_parts() if part is not Cluster)]


def _own_parts() -> list[type[Spec]]:
    return [part for part in vars(model).values() if isinstance(part, type) and issubclass(part, Spec) and part != Spec]


def inventory_tables() -> str:
    """A table of fields for each part of the model."""
    return "\n".join(_table(part) for part in parts())


def _table(part: type[Spec]) -> str:
    rows = [
        f"### {part.__name__}",
        "",
        (part.__doc__ or "").strip(),
        "",
        "| field | what it takes | default | meaning |",
    ]
    rows.append("| --- | --- | --- | --- |")
    for name, field in part.model_fields.items():
        cells = (f"`{name}`", _kind(_annotation(field)), _default(field), str(field.description))
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows) + "\n"


def _annotation(field: FieldInfo) -> Any:
    """The annotation with the validators that pydantic took off it."""
    kind: Any = field.annotation
    for mark in field.metadata:
        kind = Annotated[kind, mark]
    return kind


def _kind(kind: Any) -> str:
    if get_origin(kind) is Annotated:
        base, *marks = get_args(kind)
        flat = [inner for mark in marks for inner in (mark.metadata if isinstance(mark, FieldInfo) else [mark])]
        named = [_KINDS[mark.func] for mark in flat if isinstance(mark, AfterValidator) and mark.func in _KINDS]
        return named[0] if named else _kind(base) + _range(flat)
    if get_origin(kind) is Literal:
        return " or ".join(f'`"{word}"`' for word in get_args(kind))
    if get_origin(kind) is tuple:
        return f"tuple of {_kind(get_args(kind)[0])}"
    if get_args(kind):
        return " or ".join(_kind(one) for one in get_args(kind) if one is not type(None))
    if isinstance(kind, type) and issubclass(kind, Spec):
        return f"[{kind.__name__}](#{kind.__name__.lower()})"
    return _PLAIN[kind]


def _range(marks: list[Any]) -> str:
    ends = {key: getattr(mark, key) for mark in marks for key in ("gt", "ge", "lt", "le") if hasattr(mark, key)}
    low, high = ends.get("ge", ends.get("gt")), ends.get("le")
    if low is None:
        return ""
    above = "more than " if "gt" in ends else "from "
    return f", {above}{low:g}" + (f" to {high:g}" if high is not None else "")


def _default(field: FieldInfo) -> str:
    if field.default is PydanticUndefined:
        return "must be given"
    if isinstance(field.default, Spec):
        return f"`{type(field.default).__name__}()`"
    if isinstance(field.default, tuple) and field.default and isinstance(field.default[0], Spec):
        return "one part"
    if isinstance(field.default, str):
        return f'`"{field.default}"`'
    if isinstance(field.default, tuple):
        return "`(" + ", ".join(f'"{one}"' for one in field.default) + ("," if len(field.default) == 1 else "") + ")`"
    return f"`{field.default}`"


def with_tables(page: str, tables: str) -> str:
    """The page with fresh tables between its two marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{tables}\n{END}{after}"


def pages() -> dict[Path, str]:
    """Every generated page with the text it should have."""
    inventory, monitoring = DOCS / "inventory.md", DOCS / "monitoring.md"
    return {
        DOCS / "reference.md": reference_page(),
        DOCS / "checks.md": render_page(),
        inventory: with_tables(inventory.read_text(encoding="utf-8"), inventory_tables()),
        monitoring: with_tables(monitoring.read_text(encoding="utf-8"), live_alerts_table()),
    }


def main() -> None:
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path.relative_to(DOCS.parent)}")


if __name__ == "__main__":
    main()
