"""The order in which pyinfra would run a deploy's operations: `python -m tests.roles.site_order INVENTORY DEPLOY`.

Prints, as JSON, one list an operation, in pyinfra's order: its place in the files (line numbers, from the deploy down
to the operation), its name, the hosts it is on. Hosts are played by pyinfra's own fake connector: nothing is contacted.
"""

from __future__ import annotations

import atexit
import json
import sys

from tests.benchmarks.fake_site import play_hosts

from pyinfra.api.state import State  # isort: skip - gevent first, by the line above


def main() -> None:
    from pyinfra_cli.main import main as pyinfra_main

    states: list[State] = []
    made = State.__init__

    def remember(state: State, *arguments: object, **named: object) -> None:
        made(state, *arguments, **named)  # type: ignore[arg-type, no-untyped-call]
        states.append(state)

    State.__init__ = remember  # type: ignore[method-assign, assignment]
    atexit.register(lambda: print("\n" + json.dumps(_order(states[-1]))))
    play_hosts()
    sys.argv = ["pyinfra", *sys.argv[1:], "--dry"]
    pyinfra_main()


def _order(state: State) -> list[tuple[list[int], str, list[str]]]:
    found = []
    for op_hash in state.get_op_order():  # type: ignore[no-untyped-call]
        meta = state.op_meta[op_hash]
        hosts = sorted(host.name for host, operations in state.ops.items() if op_hash in operations)
        found.append((list(meta.op_order), ", ".join(sorted(meta.names)), hosts))
    return found


if __name__ == "__main__":
    main()
