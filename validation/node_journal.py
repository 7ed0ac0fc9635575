"""After a failure: what the kernel and Slurm of the node said at that time, to be shown beside it."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from validation.model import FailureRecord, JournalRecord, NodeCheckRecord, Outcome, Record
from validation.remote import Remote, RemoteError
from validation.run_folder import told
from validation.verdict import judge

MARGIN_S = 60
MOST_LINES, SHOWN_LINES = 400, 60
"""In the file, and in the report."""
MOST_AT_ONCE = 32
UNITS = ("slurmd", "slurmctld", "munge", "chrony")
DEADLINE_S = 15


def journal_command(since_s: float) -> str:
    """Lines of kernel and daemons of the last seconds, oldest first."""
    units = " ".join(f"_SYSTEMD_UNIT={shlex.quote(unit)}.service +" for unit in UNITS)
    window = f"--since=-{int(since_s) + MARGIN_S}s"
    return f"journalctl --no-pager -o short-iso -n {MOST_LINES} {window} {units} _TRANSPORT=kernel"


def failed_nodes(records: Sequence[Record]) -> tuple[str, ...]:
    """Nodes with a rank that did not finish, with a failed check, or named as a culprit; each once."""
    names = [record.node for record in records if isinstance(record, FailureRecord)]
    names += [r.node for r in records if isinstance(r, NodeCheckRecord) and r.outcome is Outcome.FAIL]
    names += [culprit.node for culprit in judge(records).culprits if culprit.node]
    return tuple(dict.fromkeys(names))


def collect_journals(
    logs: Path, records: Sequence[Record], remotes: Mapping[str, Remote], began: float, emit: Callable[[Record], None]
) -> None:
    """Write logs/NODE.journal.txt for each node where something failed, and its end as a record for the report."""
    command = journal_command(time.monotonic() - began)
    names = failed_nodes(records)
    with ThreadPoolExecutor(max_workers=max(1, min(MOST_AT_ONCE, len(names)))) as pool:
        said = list(pool.map(lambda name: read_journal(remotes.get(name), command), names))
    for name, text in zip(names, said, strict=True):
        file = logs / f"{name}.journal.txt"
        with told(file):
            file.write_text(text, encoding="utf-8")
        emit(JournalRecord(node=name, lines=tuple(text.splitlines()[-SHOWN_LINES:])))


def read_journal(remote: Remote | None, command: str) -> str:
    """The lines, or why there are none: a node that can't be asked is no reason to ask no other."""
    if remote is None:
        return "the node was not reached\n"
    try:
        done = remote.run(remote.sudo(command), timeout_s=DEADLINE_S)
    except RemoteError as error:
        return f"the node's journal could not be read: {error}\n"
    return done.stdout or done.stderr or "no line in this time\n"
