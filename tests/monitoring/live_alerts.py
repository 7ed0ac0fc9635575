"""What test_live_alerts.py last saw of each alert in a real lab, kept as a file, and the table of it for docs/."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import TypedDict

from files.monitoring.alerts import ALERTS
from tests.monitoring.troubles import NOT_LIVE

FILE = Path(__file__).with_name("live_alerts.json")


class Seen(TypedDict):
    """One alert that fired for real."""

    how: str
    fired_s: int
    gone_s: int


def load() -> dict[str, Seen]:
    found: dict[str, Seen] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    return found


_writing = threading.Lock()


def save(seen: dict[str, Seen]) -> None:
    """Add to what is there, by each trouble as it ends: a run that is interrupted has seen what it has seen."""
    with _writing:
        _save(seen)


def _save(seen: dict[str, Seen]) -> None:
    FILE.write_text(json.dumps({**load(), **seen}, indent=1, sort_keys=True, ensure_ascii=False) + "\n", "utf-8")


def live_alerts_table() -> str:
    """Every alert in the order of docs/alerts.md: how it was had and how fast, or why it was not."""
    seen = load()
    rows = ["| alert | had by | told after | fires | goes |", "| --- | --- | --- | --- | --- |"]
    for alert in ALERTS:
        name = f"[{alert.name}](alerts.md#{alert.name.lower()})"
        if one := seen.get(alert.name):
            rows.append(f"| {name} | {one['how']} | {alert.wait} | {one['fired_s']} s | {one['gone_s']} s |")
        else:
            why = NOT_LIVE.get(alert.name, "not had yet")
            rows.append(f"| {name} | – ({why}; played with promtool) | {alert.wait} | – | – |")
    return "\n".join(rows) + "\n"
