"""One run a cluster at a time: a lock on the controller that lives exactly as long as its holder does."""

from __future__ import annotations

import getpass
import shlex
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from validation.remote import Remote, RemoteError, Stream

FOLDER = "/run/klaster"
SILENCE_S = 60
"""The lock is free this long after its holder was last heard of: a control machine that lost its power."""
BEAT_S = 15.0
_TAKEN = 75


class ClusterLocked(Exception):
    """Another run holds the cluster; the text says who, since when and where."""


def owner(run_id: str) -> str:
    """Who holds the lock, for the one who finds it taken."""
    since = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return f"{getpass.getuser()}@{socket.gethostname()} since {since}, run {run_id}"


@contextmanager
def run_lock(controller: Remote, run_id: str) -> Iterator[None]:
    """Hold the cluster's lock; ClusterLocked if somebody has it, RemoteError if it can't be made.

    flock holds it for a shell on the controller that reads our heartbeats: whatever ends this program or the
    connection ends the shell, and the lock with it, so that no stale lock is ever left to be judged.
    """
    stream = controller.stream(controller.sudo(_command(owner(run_id))))
    ended = threading.Event()
    try:
        said = next(iter(stream.lines()), "")
        if said != "held":
            if stream.status(2.0) == _TAKEN:
                holder = controller.run(f"cat {FOLDER}/validate.owner", timeout_s=5).stdout.strip()
                raise ClusterLocked(f"another run holds this cluster: {holder or 'its name is not known'}")
            raise RemoteError(f"{controller.name}: cannot take the run lock in {FOLDER}: {said or 'no answer'}")
        threading.Thread(target=_beat, args=(stream, ended), daemon=True).start()
        yield
    finally:
        ended.set()
        stream.close()


def _command(who: str) -> str:
    listen = f"while IFS= read -r -t {SILENCE_S} beat; do :; done"
    file = f"{FOLDER}/validate.owner"
    hold = f"printf '%s\\n' {shlex.quote(who)} > {file}; echo held; {listen}; rm -f {file}"
    lock = f"flock -n -E {_TAKEN} {FOLDER}/validate.lock bash -c {shlex.quote(hold)}"
    return f"mkdir -p {FOLDER} && exec {lock}"


def _beat(stream: Stream, ended: threading.Event) -> None:
    while not ended.wait(BEAT_S):
        try:
            stream.write(b"\n")
        except RemoteError:
            return
