"""Make every host finish what comes before: in pyinfra, file order is not order across hosts."""

from __future__ import annotations

from collections.abc import Generator

from pyinfra.api.operation import operation
from pyinfra.context import host


@operation()
def barrier() -> Generator[str, None, None]:
    """Nothing on each host; called on all hosts between two roles it restores strict order, at no round trip."""
    host.noop("barrier")
    yield from ()
