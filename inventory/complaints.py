"""Turn pydantic's complaint about a part of the inventory into one sentence in the inventory's own words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from inventory.errors import nearest

_LIMITS = {
    "greater_than": ("gt", "must be more than"),
    "greater_than_equal": ("ge", "must be at least"),
    "less_than": ("lt", "must be less than"),
    "less_than_equal": ("le", "must be at most"),
}
_EXPECTED = {
    "int_type": "a whole number without quotes",
    "int_from_float": "a whole number",
    "float_type": "a number without quotes",
    "finite_number": "a finite number",
    "bool_type": "True or False",
    "string_type": "a text in quotes",
}
_KINDS = ("external", "nfs")
"""pydantic puts the kind of a part of several kinds into the place."""
_MEANING_HELPS = ("missing", "too_short", *_LIMITS, *_EXPECTED)
"""Complaints that say more with the meaning of the field."""


def explain(kind: str, values: Mapping[str, Any], fields: Mapping[str, FieldInfo], error: ValidationError) -> str:
    """One sentence in the words of the inventory about the complaint of pydantic that is most likely the cause."""
    first = _likeliest(error.errors(include_url=False))
    subject = f'{kind} "{values["name"]}"' if isinstance(values.get("name"), str) else kind
    if not first["loc"]:
        return f"{subject}: {first['ctx']['error'] if 'ctx' in first else first['msg']}"
    name = str(first["loc"][0])
    if len(first["loc"]) > 1 and isinstance(values.get(name), BaseModel):
        # A part alone where several belong: pydantic walks through its fields instead of calling it no tuple.
        first = {**first, "type": "tuple_type", "input": values[name], "loc": (name,)}
    where = name + "".join(f"[{part}]" for part in first["loc"][1:] if part not in _KINDS)
    text = _SENTENCES.get(first["type"], _other)(first, where, fields)
    about = fields[name].description if name in fields and first["type"] in _MEANING_HELPS else None
    return f"{subject}: {text}" + (f" ({about.rstrip('.')})" if about else "")


def _likeliest(complaints: list[Any]) -> Any:
    """A misspelt field also makes the right one missing: speak of the misspelt one."""
    return next((one for one in complaints if one["type"] == "extra_forbidden"), complaints[0])


def _unknown_field(_first: Any, where: str, fields: Mapping[str, FieldInfo]) -> str:
    return f'unknown field "{where}" {nearest(where, fields)}'


def _missing(_first: Any, where: str, _fields: Mapping[str, FieldInfo]) -> str:
    return f'the field "{where}" is missing; write {where}=…'


def _not_known(first: Any, where: str, _fields: Mapping[str, FieldInfo]) -> str:
    valid = [part.strip(" '") for part in str(first["ctx"]["expected"]).replace(" or ", ", ").split(", ")]
    return f"{where} = {_shown(first['input'])} is not known {nearest(str(first['input']), valid)}"


def _not_valid(first: Any, where: str, _fields: Mapping[str, FieldInfo]) -> str:
    return f"{where}: {first['ctx']['error']}"


def _no_tuple(first: Any, where: str, fields: Mapping[str, FieldInfo]) -> str:
    value = first["input"]
    part = next(iter(get_args(fields[where].annotation)), None) if where in fields else None
    inside = _shown(value)
    if isinstance(part, type) and issubclass(part, BaseModel) and not isinstance(value, BaseModel):
        inside = f"{part.__name__}(…)"
    return f"{where} must be a tuple, found {_found(value)}: write {where}=({inside},) with the comma"


def _no_part(first: Any, where: str, _fields: Mapping[str, FieldInfo]) -> str:
    return f"{where} must be {first['ctx']['class_name']}(…), found {_found(first['input'])}"


def _empty(first: Any, where: str, _fields: Mapping[str, FieldInfo]) -> str:
    return f"{where} is empty; at least {first['ctx']['min_length']} is needed"


def _wrong_type(first: Any, where: str, _fields: Mapping[str, FieldInfo]) -> str:
    return f"{where} must be {_EXPECTED[first['type']]}, found {_found(first['input'])}"


def _out_of_range(first: Any, where: str, fields: Mapping[str, FieldInfo]) -> str:
    key, words = _LIMITS[first["type"]]
    return f"{where} = {_shown(first['input'])} {words} {first['ctx'][key]:g}{_range(where, fields)}"


def _other(first: Any, where: str, _fields: Mapping[str, FieldInfo]) -> str:
    return f"{where} = {_shown(first['input'])}: {first['msg'][:1].lower()}{first['msg'][1:]}"


_SENTENCES: dict[str, Callable[[Any, str, Mapping[str, FieldInfo]], str]] = {
    "extra_forbidden": _unknown_field,
    "missing": _missing,
    "literal_error": _not_known,
    "value_error": _not_valid,
    "tuple_type": _no_tuple,
    "model_type": _no_part,
    "model_attributes_type": _no_part,
    "too_short": _empty,
    **dict.fromkeys(_EXPECTED, _wrong_type),
    **dict.fromkeys(_LIMITS, _out_of_range),
}


def _range(name: str, fields: Mapping[str, FieldInfo]) -> str:
    """Both ends of a number's range, where it has two: one failed attempt should be enough."""
    if name not in fields:
        return ""
    marks = [*fields[name].metadata]
    for part in get_args(fields[name].annotation):
        for mark in getattr(part, "__metadata__", ()):
            marks += getattr(mark, "metadata", [mark])
    ends = {key: getattr(mark, key) for mark in marks for key in ("gt", "ge", "lt", "le") if hasattr(mark, key)}
    low, high = ends.get("ge", ends.get("gt")), ends.get("le", ends.get("lt"))
    return f", allowed is {low} to {high}" if low is not None and high is not None else ""


def _shown(value: object) -> str:
    name = getattr(value, "name", None)
    if isinstance(value, BaseModel):
        return f'{type(value).__name__}(name="{name}", …)' if isinstance(name, str) else f"{type(value).__name__}(…)"
    text = f'"{value}"' if isinstance(value, str) else repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def _found(value: object) -> str:
    if isinstance(value, BaseModel):
        return f"a single {type(value).__name__}"
    kinds = {str: "the text", bool: "the switch", int: "the number", float: "the number", tuple: "a tuple"}
    shown = f" {_shown(value)}" if not isinstance(value, (tuple, list, dict)) else ""
    return kinds.get(type(value), f"a {type(value).__name__}") + shown
