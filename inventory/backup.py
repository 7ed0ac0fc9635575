"""Where copies of what can't be made again go."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from inventory.spec import Spec
from inventory.words import AbsolutePath, Switch


def clock_time(text: str) -> str:
    """A time of day."""
    hours, _, minutes = text.partition(":")
    if not (len(text) == 5 and hours.isdigit() and minutes.isdigit() and int(hours) < 24 and int(minutes) < 60):
        raise ValueError(f'"{text}" is not a time of day such as 03:30')
    return text


ClockTime = Annotated[str, AfterValidator(clock_time)]


class Backup(Spec):
    """Nightly copies of people, job history and certificates on the controller."""

    folder: AbsolutePath = Field(
        default="/var/backups/klaster", description="On another disk or machine, or it saves you from little."
    )
    at: ClockTime = Field(default="03:30", description="Time of day, as the controller's clock has it.")
    keep: int = Field(default=14, strict=True, ge=1, le=3650, description="Copies that are kept.")
    secrets: Switch = Field(
        default=False, description="Keep the secrets file on the controller too, for root alone, and copy it as well."
    )
