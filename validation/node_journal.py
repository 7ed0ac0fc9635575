"""After a failure: what the kernel and Slurm of the node said at that time, beside the rank's own log."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from validation.model import FailureRecord, Record
from validation.remote import Remote, RemoteError

MARGIN_S = 60
MOST_LINES = 400
UNITS = ("slurmd", "slurmctld", "munge", "chrony")
DEADLINE_S = 15


def journal_command(since_s: float) -> str:
    """Lines of kernel and daemons of the last seconds, oldest first."""
    units = " ".join(f"_SYSTEMD_UNIT={shlex.quote(unit)}.service +" for unit in UNITS)
    window = f"--since=-{int(since_s) + MARGIN_S}s"
    return f"journalctl --no-pager -o short-iso -n {MOST_LINES} {window} {units} _TRANSPORT=kernel"


def failed_nodes(records: Iterable[Record]) -> tuple[str, ...]:
    """Nodes with a rank that did not finish, each once, in their order."""
    return tuple(dict.fromkeys(record.node for record in records if isinstance(record, FailureRecord)))


def collect_journals(logs: Path, records: Iterable[Record], remotes: Mapping[str, Remote], began: float) -> None:
    """Write logs/NODE.journal.txt for each node where something failed; a node that can't be asked is named there."""
    since_s = time.monotonic() - began
    for name in failed_nodes(records):
        file = logs / f"{name}.journal.txt"
        remote = remotes.get(name)
        if remote is None:
            file.write_text("the node was not reached\n", encoding="utf-8")
            continue
        try:
            done = remote.run(remote.sudo(journal_command(since_s)), timeout_s=DEADLINE_S)
        except RemoteError as error:
            file.write_text(f"the node's journal could not be read: {error}\n", encoding="utf-8")
        else:
            file.write_text(done.stdout or done.stderr or "no line in this time\n", encoding="utf-8")
