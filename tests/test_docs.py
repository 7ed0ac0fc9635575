"""The documentation is true: links lead somewhere, commands and files exist, generated pages are fresh."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from inventory.loading import load_cluster
from inventory.spec import Spec
from lab.cli import VERBS
from tests import docs_reference
from tests.inventory.broken import MISTAKES
from validation.cli import parser
from validation.registry import CHECKS

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
TOP = "inventory|deploys|roles|files|validation|lab|tests|docs|bin"
PLACEHOLDERS = ("NAME", "my_cluster", "test_motd", "motd", "torch-cuda", "inventory/den.py", "hardware.json")
"""What stands in an example for a file that a reader makes."""


def _text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def _prose(page: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^ *```.*?^ *```", "", _text(page), flags=re.MULTILINE | re.DOTALL)


def _anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", _prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@each_page
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link names a file that exists, and a heading that is in it."""
    wrong = []
    for target in re.findall(r"\]\(([^)\s]+)\)", _prose(page)):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in _anchors(file)):
            wrong.append(target)
    assert wrong == [], f"{page.name}: links that lead nowhere: {wrong}"


@each_page
def test_files_that_are_named_exist(page: Path) -> None:
    """A path of the repository that stands in a page, in code or between backticks, is there."""
    named = set(re.findall(rf"(?<![\w./~-])((?:{TOP})/[\w./-]*\w)", _text(page)))
    missing = [n for n in sorted(named) if not (ROOT / n).exists() and not any(p in n for p in PLACEHOLDERS)]
    assert missing == [], f"{page.name} names files that do not exist: {missing}"


def test_the_two_commands_of_readme_can_be_run() -> None:
    """The two commands that README begins with are there and executable."""
    for name in ("bin/rehearse", "bin/test"):
        assert name in _text(ROOT / "README.md")
        assert os.access(ROOT / name, os.X_OK), f"{name} can't be executed"


@each_page
def test_options_of_validate_cluster_exist(page: Path) -> None:
    """Every option that a page gives to validate-cluster is one it has."""
    known = {option for action in parser()._actions for option in action.option_strings}
    used = {
        option
        for line in _text(page).splitlines()
        if "validate-cluster " in line
        for option in re.findall(r"(?<!\S)`?(--[a-z][a-z-]+)", line.split("validate-cluster ", 1)[1])
    }
    assert used - known == set()


@each_page
def test_verbs_of_the_lab_exist(page: Path) -> None:
    """Every verb that a page gives to bin/lab is one it has."""
    verbs = set(re.findall(r"bin/lab ([a-z]+)", _text(page)))
    assert verbs - set(VERBS) == set()


def test_every_verb_of_the_lab_is_explained() -> None:
    """The page of the lab shows each verb."""
    assert {verb for verb in VERBS if f"bin/lab {verb}" not in _text(ROOT / "docs" / "lab.md")} == set()


def test_every_role_is_listed() -> None:
    """The table of roles has exactly the roles that exist, and site.py uses each of them."""
    roles = {path.stem for path in (ROOT / "roles").glob("*.py")} - {"__init__"}
    listed = re.findall(r"^\| `(\w+)` \|", _text(ROOT / "docs" / "add-a-role.md"), re.MULTILINE)
    site = (ROOT / "deploys" / "site.py").read_text(encoding="utf-8")
    assert {name for name in listed if name in roles} == roles
    assert [name for name in roles if f"{name}.deploy(" not in site] == []


def test_roles_are_listed_in_their_order() -> None:
    """The table of roles has the order of site.py."""
    site = (ROOT / "deploys" / "site.py").read_text(encoding="utf-8")
    order = re.findall(r"^(\w+)\.deploy\(", site, re.MULTILINE)
    listed = re.findall(r"^\| `(\w+)` \|", _text(ROOT / "docs" / "add-a-role.md"), re.MULTILINE)
    assert [name for name in listed if name in order] == order


def test_every_check_has_its_place() -> None:
    """The page of checks has a heading for each check, and every check says its limit and where that comes from."""
    assert {check.name for check in CHECKS} <= _anchors(ROOT / "docs" / "checks.md")
    assert [check.name for check in CHECKS if not (check.summary and check.limit and check.origin)] == []


@pytest.mark.parametrize("path", docs_reference.pages(), ids=lambda path: path.name)
def test_generated_pages_are_fresh(path: Path) -> None:
    """Generated pages are what the programs and the model say now (but for how lines are folded)."""
    wanted = docs_reference.pages()[path]
    assert _text(path).split() == wanted.split(), "refresh it: python -m tests.docs_reference"


@pytest.mark.parametrize("part", docs_reference.parts(), ids=lambda part: part.__name__)
def test_every_field_of_the_inventory_is_documented(part: type[Spec]) -> None:
    """The page of the inventory has a row for each field of each part."""
    page = _text(ROOT / "docs" / "inventory.md")
    section = page.partition(f"### {part.__name__}\n")[2].partition("\n### ")[0]
    assert [name for name in part.model_fields if f"| `{name}` |" not in section] == []


def test_the_example_of_an_inventory_loads(tmp_path: Path) -> None:
    """The inventory that docs/inventory.md shows is a right one."""
    example = re.search(r"```python\n(.*?)```", _text(ROOT / "docs" / "inventory.md"), re.DOTALL)
    assert example is not None
    file = tmp_path / "example.py"
    file.write_text(example[1], encoding="utf-8")
    assert [node.name for node in load_cluster(str(file)).nodes] == ["attic", "cellar"]


def test_the_example_of_a_message_is_what_is_printed(tmp_path: Path) -> None:
    """The error that docs/inventory.md shows is word for word what such an inventory gives."""
    shown = re.search(
        r"^inventory error: inventory/den.py:8: (.*)$", _text(ROOT / "docs" / "inventory.md"), re.MULTILINE
    )
    assert shown is not None
    mistake = next(m for m in MISTAKES if m.what == "unknown field")
    file = tmp_path / "den.py"
    file.write_text(mistake.text, encoding="utf-8")
    with pytest.raises(SystemExit) as caught:
        load_cluster(str(file))
    assert str(caught.value.code) == f"inventory error: {file}:8: {shown[1]}"


def test_the_glossary_has_each_term_once_and_in_order() -> None:
    """One term for one idea, sorted so that it is found."""
    terms = re.findall(r"^\| ([^|]+) \|", _text(ROOT / "docs" / "glossary.md"), re.MULTILINE)[2:]
    assert len(terms) > 30
    assert terms == sorted(terms, key=str.lower)
    assert len(set(terms)) == len(terms)


def test_readme_leads_to_every_page() -> None:
    """Nobody has to guess that a page exists."""
    readme = _text(ROOT / "README.md")
    assert [page.name for page in (ROOT / "docs").glob("*.md") if f"(docs/{page.name})" not in readme] == []


def test_what_was_not_tested_is_said() -> None:
    """README says that no GPU, no InfiniBand and no real hardware was tested, until somebody has."""
    section = _text(ROOT / "README.md").partition("## What has not been tested")[2].partition("\n## ")[0]
    for word in ("GPU", "NCCL", "InfiniBand", "real hardware", "Ubuntu"):
        assert word.lower() in section.lower()
