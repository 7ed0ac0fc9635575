"""Which folder may import what, and how a module must look: the rules that keep the halves of klaster apart."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CODE = ("inventory", "roles", "deploys", "validation", "lab")
PAYLOADS = "validation/payloads/"
PROGRAMS = ("deploys/", "config.py", "lab/__main__.py", "validation/__main__.py")
"""What is executed, not imported."""
LONGEST_FILE = 400
"""Lines; aim under 250."""
PURE = ("verdict", "verdicts", "schedule", "certificate", "report", "metrics", "summary")
"""What must give the same answer again from the same records (validation/NAME.py, NAME_*.py, NAME/)."""
IMPURE = ("time", "random", "secrets", "socket", "subprocess", "threading", "os", "uuid", "tempfile", "shutil")


@dataclass(frozen=True)
class Rule:
    """Files below `folder` may import the standard library and what begins with one of `allowed`."""

    folder: str
    allowed: tuple[str, ...]


VALIDATION_USES = (
    "cryptography",
    "pydantic",
    "paramiko",
    "jinja2",
    "markupsafe",
    "prometheus_client",
    "pytest",
    "testinfra",
)

# The first rule whose folder matches holds.
RULES = (
    Rule("config.py", ("click", "inventory")),
    Rule("inventory/", ("inventory", "pydantic")),
    Rule("roles/facts/", ("inventory", "roles.facts", "pyinfra")),
    Rule(
        "roles/operations/",
        ("inventory", "roles.facts", "roles.operations", "pyinfra", "jinja2", "cryptography", "bcrypt"),
    ),
    Rule("roles/", ("inventory", "roles.facts", "roles.operations", "pyinfra", "jinja2")),
    Rule("deploys/", ("inventory", "roles", "pyinfra", "click")),
    Rule(PAYLOADS, ("torch", "numpy")),  # and each other, by bare names: they travel to the nodes alone
    Rule("validation/", ("inventory", "validation", *VALIDATION_USES)),
    Rule("lab/", ("inventory", "lab", "pydantic")),
)


def _files() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return sorted({name for name in listed.stdout.split("\n") if name and (ROOT / name).exists()})


FILES = _files()
PRODUCT = [name for name in FILES if name.startswith(tuple(f"{folder}/" for folder in CODE)) or name == "config.py"]
each_product_file = pytest.mark.parametrize("name", PRODUCT)


def _tree(name: str) -> ast.Module:
    return ast.parse((ROOT / name).read_text(encoding="utf-8"), filename=name)


def _imports(name: str) -> Iterator[tuple[int, str]]:
    """Line and full name of everything a file imports, wherever in it."""
    package = name.split("/")[:-1]
    for node in ast.walk(_tree(name)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


def _allowed(name: str, imported: str, allowed: tuple[str, ...]) -> bool:
    top = imported.partition(".")[0]
    if top in sys.stdlib_module_names:
        return True
    if name.startswith(PAYLOADS) and (ROOT / PAYLOADS / f"{top}.py").exists():
        return True
    return any(imported == module or imported.startswith(f"{module}.") for module in allowed)


@each_product_file
def test_a_file_imports_only_what_its_folder_may(name: str) -> None:
    """Each folder imports the standard library and the few packages and folders that the table names."""
    rule = next((rule for rule in RULES if name.startswith(rule.folder)), None)
    assert rule is not None, f"{name}: no import rule for this folder; add one here and say why in README's tour"
    forbidden = [(line, what) for line, what in _imports(name) if not _allowed(name, what, rule.allowed)]
    wrong = [f"{name}:{line} imports {what}" for line, what in forbidden]
    allowed = ", ".join(rule.allowed)
    assert not wrong, f"{'; '.join(wrong)}. {rule.folder} may import the standard library, {allowed}"


@pytest.mark.parametrize(("folder", "others"), [("roles/", "validation"), ("validation/", "roles"), ("lab/", "roles")])
def test_the_halves_meet_only_in_the_inventory(folder: str, others: str) -> None:
    """Roles never know validation, validation never knows roles, the lab knows neither."""
    assert any(name.startswith(folder) for name in PRODUCT)
    assert [
        f"{name}:{line} imports {what}"
        for name in PRODUCT
        if name.startswith(folder)
        for line, what in _imports(name)
        if what.split(".")[0] == others
    ] == []


def _is_pure(name: str) -> bool:
    parts = name.removeprefix("validation/").split("/")
    stem = parts[0].removesuffix(".py")
    return name.startswith("validation/") and any(stem == pure or stem.startswith(f"{pure}_") for pure in PURE)


@pytest.mark.parametrize("name", [name for name in PRODUCT if _is_pure(name)])
def test_judging_and_reporting_are_pure(name: str) -> None:
    """Verdicts, certificates and reports read no clock, no chance and no machine, so that judging again is equal."""
    wrong = [f"{name}:{line} imports {what}" for line, what in _imports(name) if what.split(".")[0] in IMPURE]
    assert not wrong, f"{'; '.join(wrong)}: everything a judgement needs must come from the records"


@pytest.mark.parametrize("name", FILES)
def test_a_module_says_its_purpose_in_one_line(name: str) -> None:
    """The first line of every module is one sentence of purpose (an empty __init__.py has none to say)."""
    text = (ROOT / name).read_text(encoding="utf-8")
    if not text.strip():
        assert name.endswith("__init__.py"), f"{name} is empty; delete it"
        return
    purpose = (ast.get_docstring(_tree(name)) or "").split("\n")[0]
    assert purpose.rstrip().endswith((".", "?", ":")), f"{name}: the first line must be one sentence of purpose"


@pytest.mark.parametrize("name", FILES)
def test_no_module_is_a_drawer_for_everything(name: str) -> None:
    """A module is named by what it holds."""
    drawers = {"utils", "util", "common", "helpers", "helper", "misc"}
    assert not drawers & set(name.removesuffix(".py").split("/")), f"{name}: name it by what it holds"


@pytest.mark.parametrize("name", FILES)
def test_a_file_can_be_read_in_one_sitting(name: str) -> None:
    """No file is longer than can be read at once."""
    lines = len((ROOT / name).read_text(encoding="utf-8").splitlines())
    assert lines <= LONGEST_FILE, f"{name} has {lines} lines; split it below {LONGEST_FILE}, better below 250"


@pytest.mark.parametrize("name", [name for name in FILES if name.startswith("tests/")])
def test_every_test_says_what_holds(name: str) -> None:
    """Each test has one sentence of behaviour as its docstring."""
    tests = [node for node in ast.walk(_tree(name)) if isinstance(node, ast.FunctionDef) and _is_test(node, name)]
    silent = [node.name for node in tests if not (ast.get_docstring(node) or "").rstrip().endswith((".", ":"))]
    assert silent == [], f"{name}: no sentence of behaviour in {', '.join(silent)}"


def _is_test(node: ast.FunctionDef, name: str) -> bool:
    return node.name.startswith("test_") and Path(name).name.startswith("test_")


def _acts(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)


@pytest.mark.parametrize("name", [n for n in PRODUCT if not n.startswith(PROGRAMS)])
def test_nothing_happens_at_import(name: str) -> None:
    """Importing a module calls nothing for its effect; only an inventory's last line hands its groups over."""
    lines = [ast.unparse(node) for node in _tree(name).body if _acts(node)]
    assert [line for line in lines if line != "globals().update(CLUSTER.groups(__file__))"] == []


@pytest.mark.parametrize(
    ("name", "imported", "fine"),
    [
        ("inventory/model.py", "pydantic.Field", True),
        ("inventory/model.py", "pydanticextra.Field", False),
        ("roles/base.py", "roles.facts.site", True),
        ("roles/base.py", "roles.slurm.deploy", False),
        ("validation/run.py", "torch", False),
        ("validation/payloads/probe.py", "torch.nn", True),
        ("validation/payloads/probe.py", "inventory.model", False),
        ("lab/plan.py", "validation.model", False),
        ("deploys/site.py", "json.loads", True),
    ],
)
def test_the_rules_tell_right_from_wrong(name: str, imported: str, fine: bool) -> None:
    """The table refuses what it should: a rule that lets everything pass would hide a wrong import."""
    rule = next(rule for rule in RULES if name.startswith(rule.folder))
    assert _allowed(name, imported, rule.allowed) is fine
