"""What is done cheaper than pyinfra does it gives what pyinfra gives."""

from __future__ import annotations

from types import SimpleNamespace

import pyinfra
import pytest
from pyinfra.api import util

from roles.facts.fast import order_from_stack


def _deep(state: object) -> tuple[list[int], list[int]]:
    return util.get_operation_order_from_stack(state), order_from_stack(state)  # type: ignore[arg-type, no-untyped-call]


@pytest.mark.parametrize("deploy", [__file__, "/nowhere/site.py", None])
@pytest.mark.parametrize("cli", [True, False])
def test_the_order_of_an_operation_is_pyinfras(deploy: str | None, cli: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same numbers from the same place, in a deploy file, in none, and in another one."""
    monkeypatch.setattr(pyinfra, "is_cli", cli)
    theirs, ours = _deep(SimpleNamespace(current_deploy_filename=deploy, current_op_file_number=3))
    assert len(theirs) >= (1 if cli else 0)
    if deploy == "/nowhere/site.py":
        assert ours[: int(cli)] == theirs[: int(cli)]
    else:
        assert ours == theirs
