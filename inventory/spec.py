"""The base of every part of an inventory: frozen, strict, and in plain words when it is wrong."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, PrivateAttr, ValidationError

from inventory.complaints import explain
from inventory.errors import InventoryError, Mismatch, Place, place_in_inventory


class Spec(BaseModel):
    """Base of every part: frozen, no unknown field, and an InventoryError in one line instead of a traceback."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    _place: Place | None = PrivateAttr(default=None)

    def __init__(self, *unnamed: Any, **values: Any) -> None:
        kind, place = type(self).__name__, place_in_inventory()
        if unnamed:
            example = next(iter(type(self).model_fields))
            raise InventoryError(f"{place}{kind}: write each field with its name, e.g. {kind}({example}=…)")
        try:
            super().__init__(**values)
        except ValidationError as error:
            cause = error.errors(include_url=False)[0].get("ctx", {}).get("error")
            better = cause.place if isinstance(cause, Mismatch) else None
            line = explain(kind, values, type(self).model_fields, error)
            raise InventoryError(f"{better or place}{line}") from None
        self._place = place

    @property
    def place(self) -> Place | None:
        """Where this part was written, for messages."""
        return self._place
