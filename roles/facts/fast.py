"""What of pyinfra costs too much at a hundred hosts, done cheaper with the same result; measured in docs/scale.md."""

from __future__ import annotations

import sys

import pyinfra.api.operation
from pyinfra.api import util
from pyinfra.api.state import State


def order_from_stack(state: State) -> list[int]:
    """As pyinfra's get_operation_order_from_stack: line numbers from the deploy file down to the operation.

    pyinfra asks inspect.stack(), which reads source lines of every frame, for each operation and host; frames alone
    are enough.
    """
    frames = []
    frame = sys._getframe(1)
    while frame is not None:
        frames.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back  # type: ignore[assignment]
    frames.reverse()
    names = [name for name, _ in frames]
    deploy = state.current_deploy_filename
    first = names.index(deploy) if deploy in names else (len(frames) - 1 if deploy else 0)
    lines = [line for name, line in frames[first:] if not name.startswith(util.PYINFRA_INSTALL_DIR)]
    return [state.current_op_file_number, *lines] if pyinfra.is_cli else lines


def make_fast() -> None:
    """Put the cheaper ways in place of pyinfra's; again, it changes nothing."""
    pyinfra.api.operation.get_operation_order_from_stack = order_from_stack  # type: ignore[attr-defined]
