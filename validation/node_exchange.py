"""Let nodes write and read in shared folders by turns: the proof that a path is the same folder on all of them."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from inventory.model import DEPLOY_ACCOUNT, Cluster
from inventory.storage import OWN_FOLDER, is_server, mounted
from validation.checks.node import Probe, problem
from validation.remote import Remote, RemoteError

STEP_TIMEOUT_S = 10.0
ROOT_WROTE = "root of this node could write there: root is not squashed"


def exchange_files(
    cluster: Cluster, probes: Mapping[str, Probe], remotes: Mapping[str, Remote], pool: ThreadPoolExecutor
) -> dict[str, dict[str, str]]:
    """Node → folder → empty text or a complaint. Folders that do not answer, or that one node has, are left out."""
    found: dict[str, dict[str, str]] = {}
    for share in cluster.nfs:
        names = [
            node.name
            for node in cluster.nodes
            if node.name in probes and (is_server(cluster, node) or share in mounted(cluster, node))
            if not problem(probes[node.name], f"filesystem:{share.path}")
        ]
        if len(names) > 1:
            for name, said in _round(share.path, names, remotes, pool).items():
                found.setdefault(name, {})[share.path] = said
    return found


def _round(path: str, names: list[str], remotes: Mapping[str, Remote], pool: ThreadPoolExecutor) -> dict[str, str]:
    """Each of two nodes writes a new word into one file and closes it; after each, all read it."""
    file = f"{path}/{OWN_FOLDER}/exchange-{secrets.token_hex(6)}"
    said = dict.fromkeys(names, "")
    try:
        for writer in (names[-1], names[0]):
            word = secrets.token_hex(8)
            if why := _write(remotes[writer], file, word):
                said[writer] = said[writer] or why
                continue
            for name, text in zip(names, pool.map(lambda name: _read(remotes[name], file), names), strict=True):
                if text != word:
                    said[name] = said[name] or f"{writer} wrote {word}, {name} read {text or 'nothing'}"
        clients = names[1:] if len(names) > 1 else []
        for name, wrote in zip(clients, pool.map(lambda name: _root_writes(remotes[name], file), clients), strict=True):
            if wrote:
                said[name] = said[name] or ROOT_WROTE
    finally:
        _run(remotes[names[0]], f"runuser -u {DEPLOY_ACCOUNT} -- rm -f {shlex.quote(file)}")
    return said


def _write(remote: Remote, file: str, word: str) -> str:
    script = shlex.quote(f"echo {word} > {shlex.quote(file)}")
    status, text = _run(remote, f"runuser -u {DEPLOY_ACCOUNT} -- sh -c {script}")
    return "" if status == 0 else f"{remote.name} can't write: {text or 'no message'}"


def _read(remote: Remote, file: str) -> str:
    return _run(remote, f"runuser -u {DEPLOY_ACCOUNT} -- cat {shlex.quote(file)}")[1]


def _root_writes(remote: Remote, file: str) -> bool:
    new = shlex.quote(f"{file}-{remote.name}")
    return _run(remote, f"sh -c {shlex.quote(f'touch {new} && rm -f {new}')}")[0] == 0


def _run(remote: Remote, command: str) -> tuple[int, str]:
    """Status and last words; a node that does not answer in time has status 255."""
    try:
        done = remote.run(remote.sudo(command), timeout_s=STEP_TIMEOUT_S)
    except RemoteError as error:
        return 255, str(error)
    lines = (done.stdout or done.stderr).strip().splitlines()
    return done.status, lines[-1] if lines else ""
