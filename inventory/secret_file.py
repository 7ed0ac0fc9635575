"""The file of secrets beside an inventory, as both halves read it; only the deploy makes secrets."""

from __future__ import annotations

import json
from pathlib import Path

from inventory.errors import InventoryError

SIGNING_KEY = "signing_key"
"""Name of the Ed25519 key (PEM) that certificates are signed with."""


def read_secrets(path: Path) -> dict[str, str]:
    """Name → secret; empty if there is no file yet. InventoryError if others may read it, or it is damaged."""
    if not path.exists():
        return {}
    try:
        mode = path.stat().st_mode & 0o777
        if mode & 0o077:
            raise InventoryError(f"{path} holds secrets and has mode {mode:o}: chmod 600 {path}")
        known: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(known, dict) or not all(isinstance(secret, str) for secret in known.values()):
            raise ValueError("not name → secret")  # said below: a secret must not get into a message
    except OSError as error:
        raise InventoryError(f"{path} can't be read ({error.strerror})") from None
    except (ValueError, RecursionError):
        raise InventoryError(
            f"{path} is damaged: restore it from a backup, or move it away to make new secrets on every node"
        ) from None
    return known
