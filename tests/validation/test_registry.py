"""The registry is the one list of checks: names are unique, told to people, and those that verdicts speak of."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from validation.model import STAGES
from validation.registry import CHECKS, Check, by_name, render_list, render_page

ROOT = Path(__file__).parents[2]


def test_names_are_unique() -> None:
    """A name in a record or a drain reason means one check."""
    names = [check.name for check in CHECKS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_every_check_is_told_in_full(check: Check) -> None:
    """Each has a stage, a sentence, a limit with its origin, and a place in the documentation that exists."""
    assert check.stage in STAGES
    assert check.summary
    assert check.limit
    assert check.origin
    assert f"### {check.name}\n" in (ROOT / "docs" / check.docs.partition("#")[0]).read_text(encoding="utf-8")
    assert check.name in render_list()
    assert by_name(check.name) is check


def test_the_page_is_fresh() -> None:
    """docs/checks.md is what the registry says; refresh: python -m validation.registry > docs/checks.md."""
    assert (ROOT / "docs" / "checks.md").read_text(encoding="utf-8") == render_page()


def test_verdicts_speak_of_registered_checks() -> None:
    """Every check name that a module of the verdict writes into a result is in the registry."""
    names = {check.name for check in CHECKS}
    modules = [*(ROOT / "validation" / "verdicts").glob("*.py"), ROOT / "validation" / "verdict.py"]
    written = {
        name for module in modules for name in re.findall(r'\bcheck="([a-z-]+)"', module.read_text(encoding="utf-8"))
    }
    assert len(written) >= 5
    assert written <= names
