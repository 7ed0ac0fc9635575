"""docs/verdicts.md explains every cause and outcome that a verdict can hold."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from validation.model import Outcome
from validation.report_causes import CAUSES, CLUSTER_CAUSES, LINK_CAUSES
from validation.verdicts.failures import REMEDIES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "verdicts.md").read_text(encoding="utf-8")


def written_causes() -> set[str]:
    """Causes given as a literal in the verdict's modules."""
    texts = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "validation" / "verdicts").glob("*.py"))]
    return {cause for text in texts for cause in re.findall(r'cause="([a-z-]+)"', text)}


@pytest.mark.parametrize("cause", sorted({*CAUSES, *LINK_CAUSES, *CLUSTER_CAUSES, *REMEDIES, *written_causes()}))
def test_each_cause_is_explained(cause: str) -> None:
    """Whatever cause a report can name has its row with a first step."""
    assert f"`{cause}`" in PAGE or (cause == "corruption" and "`data-corruption`" in PAGE)


@pytest.mark.parametrize("outcome", list(Outcome))
def test_each_outcome_is_explained(outcome: Outcome) -> None:
    """Each outcome has its row."""
    assert f"| {outcome.value} |" in PAGE
