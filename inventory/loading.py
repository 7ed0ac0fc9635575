"""Load an inventory file into its Cluster, and know which files belong beside it."""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from pydantic import ValidationError

from inventory.errors import InventoryError, Place, nearest
from inventory.model import Cluster
from inventory.spec import Spec

LAST_LINE = "globals().update(CLUSTER.groups(__file__))"
"""How an inventory hands its nodes to pyinfra; without it pyinfra would find no host and call that a success."""


@cache
def load_cluster(inventory_file: str) -> Cluster:
    """Execute an inventory file and return its `CLUSTER`; InventoryError in one line for anything wrong with it."""
    path = Path(inventory_file)
    if path.is_dir():
        raise InventoryError(f"{inventory_file} is a folder; say which file in it, e.g. inventory/home.py")
    if not path.is_file():
        near = (str(file) for file in path.parent.glob("*.py") if _is_inventory(file))
        raise InventoryError(f"no inventory file {inventory_file} {nearest(str(path), near)}")
    _check_text(path)
    try:
        found = runpy.run_path(str(path))
    except InventoryError:
        raise
    except SystemExit as stop:
        raise InventoryError(f"{_line(stop, path)}the file ends the program ({stop.code}); take that out") from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever a person may write in a Python file
        raise InventoryError(_line(error, path) + _sentence(error, path)) from None
    cluster = found.get("CLUSTER")
    if not isinstance(cluster, Cluster):
        _refuse_no_cluster(path, found)
    _check_groups(path, cluster, found)
    return cluster


def _check_text(path: Path) -> None:
    """pyinfra reads the file once more, as UTF-8, where Python itself forgives other bytes in a comment."""
    try:
        path.read_text(encoding="utf-8")
    except OSError as error:
        raise InventoryError(f"{path} can't be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        place = Place(str(path), error.object.count(b"\n", 0, error.start) + 1)
        raise InventoryError(
            f"{place}not UTF-8 (byte 0x{error.object[error.start]:02x}); save the file as UTF-8"
        ) from None


def _is_inventory(file: Path) -> bool:
    """The folder of the examples also holds the model: a module is nothing to propose."""
    return file.is_file() and LAST_LINE in file.read_text(encoding="utf-8", errors="replace").splitlines()


def _refuse_no_cluster(path: Path, found: Mapping[str, Any]) -> NoReturn:
    place = Place(str(path), _line_of(path, "CLUSTER"))
    if "CLUSTER" in found:
        raise InventoryError(f"{place}{_not_a_cluster(found['CLUSTER'])}")
    others = [name for name, value in found.items() if isinstance(value, Cluster)]
    if others:
        place = Place(str(path), _line_of(path, others[0]))
        raise InventoryError(f'{place}the cluster must be called CLUSTER, found "{others[0]}"; rename it')
    raise InventoryError(f"{place}CLUSTER is missing; the file must define CLUSTER = Cluster(…)")


def _not_a_cluster(value: object) -> str:
    comma = " (a comma after the last parenthesis makes a tuple; remove it)" if isinstance(value, tuple) else ""
    return f"CLUSTER must be a Cluster(…), found a {type(value).__name__}{comma}"


def _check_groups(path: Path, cluster: Cluster, found: Mapping[str, Any]) -> None:
    """pyinfra takes every list and tuple at the top of the file for a group of hosts: only ours may be there."""
    groups = cluster.groups(str(path))
    if any(found.get(name) != group for name, group in groups.items()):
        place = Place(str(path), len(path.read_text(encoding="utf-8").rstrip().splitlines()))
        raise InventoryError(f"{place}the last line must be {LAST_LINE}; without it pyinfra would find no node")
    if path.stem in (node.name for node in cluster.nodes):
        raise InventoryError(f'{path}: a node is named "{path.stem}" like this file, and pyinfra\'s group; rename one')
    for name, value in found.items():
        if isinstance(value, (list, tuple)) and not name.startswith("_") and name not in groups:
            place = Place(str(path), _line_of(path, name))
            kind = type(value).__name__
            raise InventoryError(f'{place}pyinfra would take the {kind} "{name}" for hosts; call it "_{name}"')


def _sentence(error: BaseException, path: Path) -> str:
    if isinstance(error, SyntaxError):
        return f"not valid Python: {error.msg}"
    if isinstance(error, NameError) and error.name:
        return _unknown_name(error.name)
    if imported := re.match(r"cannot import name '(\w+)' from 'inventory.model'", str(error)):
        return f'inventory.model has no "{imported[1]}" {nearest(imported[1], _vocabulary())}'
    if isinstance(error, ValidationError) and error.errors()[0]["type"] == "frozen_instance":
        return f"a {error.title} can't be changed afterwards; write the value into {error.title}(…)"
    return _wrong_cluster(error, path) or f"{type(error).__name__}: {error}"


def _unknown_name(name: str) -> str:
    if name in _vocabulary():
        return f'"{name}" is not imported; add it to the line "from inventory.model import …"'
    if name == "CLUSTER":
        return "CLUSTER is missing; the file must define CLUSTER = Cluster(…)"
    return f'unknown name "{name}" {nearest(name, _vocabulary())}; a text needs quotes'


def _wrong_cluster(error: BaseException, path: Path) -> str | None:
    """The last line failed because CLUSTER is something else, or because of what it was called with."""
    if "groups()" in str(error):
        return f"the last line must be {LAST_LINE}"
    for frame in _own_frames(error.__traceback__, path):
        cluster = frame.tb_frame.f_globals.get("CLUSTER")
        if cluster is not None and not isinstance(cluster, Cluster):
            return _not_a_cluster(cluster)
    return None


def _vocabulary() -> list[str]:
    """The parts that an inventory may import."""
    return [part.__name__ for part in Spec.__subclasses__()]


def _line(error: BaseException, path: Path) -> str:
    line = getattr(error, "lineno", None) if isinstance(error, SyntaxError) else None
    for frame in _own_frames(error.__traceback__, path):
        line = frame.tb_lineno
    return str(Place(str(path), line or 1))


def _own_frames(trace: TracebackType | None, path: Path) -> Iterator[TracebackType]:
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            yield trace
        trace = trace.tb_next


def _line_of(path: Path, name: str) -> int:
    """The last line where a name is given its value; the first line of the file if there is none."""
    lines = path.read_text(encoding="utf-8").splitlines()
    found = [number for number, line in enumerate(lines, 1) if re.match(rf"{re.escape(name)}\s*[:=]", line)]
    return found[-1] if found else 1


def beside(inventory_file: str, suffix: str) -> Path:
    """The file that belongs to an inventory: `home.py` and `hardware.json` give `home.hardware.json`."""
    path = Path(inventory_file).resolve()
    folder = load_cluster(inventory_file).state_dir
    return (Path(folder) if folder else path.parent) / f"{path.stem}.{suffix}"


def hardware_lock_path(inventory_file: str) -> Path:
    return beside(inventory_file, "hardware.json")


def secrets_path(inventory_file: str) -> Path:
    return beside(inventory_file, "secrets.json")


def signing_public_path(inventory_file: str) -> Path:
    """The public half of the key that certificates are signed with, for a person to commit."""
    return beside(inventory_file, "signing.pub")
