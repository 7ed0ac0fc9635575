"""Load an inventory file into its Cluster, and know which files belong beside it."""

from __future__ import annotations

import runpy
from functools import cache
from pathlib import Path

from inventory.errors import InventoryError
from inventory.model import Cluster


@cache
def load_cluster(inventory_file: str) -> Cluster:
    """Execute an inventory file and return its `CLUSTER`; InventoryError in one line for anything wrong with it."""
    path = Path(inventory_file)
    if not path.is_file():
        raise InventoryError(f"no inventory file {inventory_file}")
    try:
        found = runpy.run_path(str(path)).get("CLUSTER")
    except InventoryError:
        raise
    except Exception as error:  # whatever a person may write in a Python file
        raise InventoryError(f"{path.name}: {_place(error, path)}{type(error).__name__}: {error}") from None
    if not isinstance(found, Cluster):
        raise InventoryError(f"{path.name}: it must define CLUSTER = Cluster(...); found {type(found).__name__}")
    return found


def _place(error: Exception, path: Path) -> str:
    trace, line = error.__traceback__, getattr(error, "lineno", None)
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    return f"line {line}: " if line else ""


def beside(inventory_file: str, suffix: str) -> Path:
    """The file that belongs to an inventory: `home.py` and `hardware.json` give `home.hardware.json`."""
    path = Path(inventory_file).resolve()
    folder = load_cluster(inventory_file).state_dir
    return (Path(folder) if folder else path.parent) / f"{path.stem}.{suffix}"


def hardware_lock_path(inventory_file: str) -> Path:
    return beside(inventory_file, "hardware.json")


def secrets_path(inventory_file: str) -> Path:
    return beside(inventory_file, "secrets.json")
