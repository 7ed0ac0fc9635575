"""One ssh connection a node with many channels on it: run a command, put a file, talk to a long-lived program."""

from __future__ import annotations

import contextlib
import secrets
import shlex
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import paramiko

from inventory.guard import quieten_paramiko
from inventory.model import Cluster, Node

CONNECTS_AT_ONCE = 32
_known_hosts_lock = threading.Lock()


class RemoteError(Exception):
    """Something on the way to a node failed; the text is one sentence."""


class RemoteTimeout(RemoteError):
    """A command did not end within its time."""


class RemoteGone(RemoteError):
    """The connection to the node is lost."""


@dataclass(frozen=True)
class Completed:
    """What a command left: its exit status (128 + n after signal n) and its output."""

    status: int
    stdout: str
    stderr: str

    @property
    def ok(self) -> bool:
        return self.status == 0


class Stream:
    """Line-oriented stdin, stdout and stderr of a program that lives as long as its channel is open."""

    def __init__(self, channel: paramiko.Channel, node: str) -> None:
        self._channel = channel
        self._node = node

    def write(self, data: bytes) -> None:
        """Send to the program's stdin; RemoteGone when nobody reads any more."""
        try:
            self._channel.sendall(data)
        except (OSError, paramiko.SSHException) as error:
            raise RemoteGone(f"{self._node}: the program does not take input any more ({error or 'closed'})") from error

    def lines(self) -> Iterator[str]:
        """Lines of stdout until its end; blocks."""
        return _lines(self._channel.recv)

    def error_lines(self) -> Iterator[str]:
        """Lines of stderr until its end; blocks."""
        return _lines(self._channel.recv_stderr)

    def status(self, timeout_s: float = 2.0) -> int | None:
        """Exit status (128 + n after signal n) once the program ended; None if nothing was told in time."""
        if not self._channel.status_event.wait(timeout_s):
            return None
        status = self._channel.recv_exit_status()
        return None if status < 0 else status

    def end_input(self) -> None:
        """End of the program's stdin, which is how it is asked to go."""
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            self._channel.shutdown_write()

    def close(self) -> None:
        self.end_input()
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            self._channel.close()


def _lines(receive: Callable[[int], bytes]) -> Iterator[str]:
    rest = b""
    while True:
        try:
            data = receive(65536)
        except OSError:
            data = b""
        if not data:
            break
        *whole, rest = (rest + data).split(b"\n")
        for line in whole:
            yield line.decode("utf-8", "replace")
    if rest:
        yield rest.decode("utf-8", "replace")


class Remote:
    """A connected node. Threads may use it side by side; sshd allows ten channels at once (MaxSessions)."""

    def __init__(self, name: str, user: str, client: paramiko.SSHClient) -> None:
        self.name = name
        self.user = user
        self._client = client

    def run(self, command: str, *, timeout_s: float, stdin: bytes | None = None) -> Completed:
        """Run a shell command to its end; RemoteTimeout, RemoteGone. A command that timed out gets its input closed."""
        channel = self._open(command, timeout_s)
        deadline = time.monotonic() + timeout_s
        try:
            return _complete(channel, stdin, deadline)
        except TimeoutError:
            short = command if len(command) < 60 else command[:57] + "..."
            raise RemoteTimeout(f"{self.name}: no end within {timeout_s:g} s: {short}") from None
        except (OSError, EOFError, paramiko.SSHException) as error:
            raise RemoteGone(f"{self.name}: connection lost ({error or type(error).__name__})") from error
        finally:
            channel.close()

    def put(self, content: bytes, path: str, mode: int = 0o644) -> None:
        """Write a file as the login user: a temporary one beside it, then rename. RemoteError if that failed."""
        new = shlex.quote(f"{path}.{secrets.token_hex(4)}.new")
        target = shlex.quote(path)
        command = (
            f"umask 077; cat > {new} && chmod {mode:04o} {new} && mv -f {new} {target} "
            f"|| {{ s=$?; rm -f {new}; exit $s; }}"
        )
        done = self.run(command, timeout_s=30, stdin=content)
        if not done.ok:
            raise RemoteError(f"{self.name}: cannot write {path}: {done.stderr.strip() or f'status {done.status}'}")

    def stream(self, command: str) -> Stream:
        """Start a long-lived program and keep its stdin and stdout."""
        return Stream(self._open(command, 10.0), self.name)

    def sudo(self, command: str) -> str:
        """The command line that runs `command` as root from this login."""
        return command if self.user == "root" else f"sudo -n sh -c {shlex.quote(command)}"

    def close(self) -> None:
        with contextlib.suppress(Exception):  # closing a broken connection must not hide why it broke
            self._client.close()

    def _open(self, command: str, timeout_s: float) -> paramiko.Channel:
        transport = self._client.get_transport()
        if transport is None or not transport.is_active():
            raise RemoteGone(f"{self.name}: connection lost")
        try:
            channel = transport.open_session(timeout=min(timeout_s, 10.0))
            channel.exec_command(command)
        except (OSError, EOFError, paramiko.SSHException) as error:
            raise RemoteGone(f"{self.name}: no new channel ({error or type(error).__name__})") from error
        return channel


def _complete(channel: paramiko.Channel, stdin: bytes | None, deadline: float) -> Completed:
    """Feed and drain one channel with a deadline; TimeoutError when it passes."""
    out, err = bytearray(), bytearray()
    left = memoryview(stdin or b"")
    channel.settimeout(0.02)
    ended = False
    while True:
        if time.monotonic() > deadline:
            raise TimeoutError
        if left:
            with contextlib.suppress(TimeoutError):
                left = left[channel.send(bytes(left[:32768])) :]
        elif not ended:
            channel.shutdown_write()
            ended = True
        finished = channel.exit_status_ready() and channel.eof_received
        while channel.recv_ready():
            out += channel.recv(65536)
        while channel.recv_stderr_ready():
            err += channel.recv_stderr(65536)
        if finished and not channel.recv_ready() and not channel.recv_stderr_ready():
            return Completed(channel.recv_exit_status(), out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))
        if channel.closed and not finished and not channel.exit_status_ready():
            raise EOFError("closed without an exit status")
        if not left:
            _wait_for_output(channel, deadline)


def _wait_for_output(channel: paramiko.Channel, deadline: float) -> None:
    """Sleep until output or the exit status may be there, at most 20 ms: short enough not to be noticed."""
    if channel.recv_ready() or channel.recv_stderr_ready():
        return
    channel.status_event.wait(max(0.0, min(0.02, deadline - time.monotonic())))
    if channel.exit_status_ready() and not channel.eof_received:
        time.sleep(0.002)


# --- connecting --------------------------------------------------------------------------------------------------


class _AcceptNew(paramiko.MissingHostKeyPolicy):
    """Take the key of a host never seen and write it down; a changed key is refused by paramiko before this."""

    def __init__(self, known_hosts: Path) -> None:
        self._known_hosts = known_hosts

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
        client.get_host_keys().add(hostname, key.get_name(), key)
        with _known_hosts_lock, contextlib.suppress(OSError):
            self._known_hosts.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._known_hosts.open("a", encoding="utf-8") as file:
                file.write(f"{hostname} {key.get_name()} {key.get_base64()}\n")


def _client(cluster: Cluster) -> paramiko.SSHClient:
    quieten_paramiko()
    client = paramiko.SSHClient()
    ssh = cluster.ssh
    known_hosts = Path(ssh.known_hosts or "~/.ssh/known_hosts").expanduser()
    if ssh.strict_host_keys == "no":
        client.set_missing_host_key_policy(paramiko.AutoAddPolicy())  # noqa: S507 - asked for
        return client
    if known_hosts.exists():
        client.get_host_keys().load(str(known_hosts))  # not load_host_keys: paramiko would rewrite a person's file
    strict = ssh.strict_host_keys == "yes"
    client.set_missing_host_key_policy(paramiko.RejectPolicy() if strict else _AcceptNew(known_hosts))
    return client


def connect(cluster: Cluster, node: Node, *, timeout_s: float = 10) -> Remote:
    """Connect to one node as the inventory says; RemoteError with one sentence and the remedy."""
    user = node.ssh_user or cluster.ssh.user
    key = str(Path(cluster.ssh.key).expanduser()) if cluster.ssh.key else None
    where = f"{user}@{node.address}:{cluster.ssh.port}"
    client = _client(cluster)
    try:
        client.connect(
            node.address,
            port=cluster.ssh.port,
            username=user,
            key_filename=key,
            allow_agent=key is None,
            look_for_keys=key is None,
            timeout=timeout_s,
            banner_timeout=timeout_s,
            auth_timeout=timeout_s,
            channel_timeout=timeout_s,
        )
        transport = client.get_transport()
        assert transport is not None
        # paramiko leaves Nagle's algorithm on: 48 ms a command instead of 4 (measured)
        assert isinstance(transport.sock, socket.socket)
        transport.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        transport.set_keepalive(10)
    except Exception as error:  # paramiko raises a wide family, OSError and EOFError among it
        client.close()
        raise RemoteError(_why_not(where, error)) from error
    return Remote(node.name, user, client)


def _why_not(where: str, error: Exception) -> str:
    if isinstance(error, paramiko.BadHostKeyException):
        return f"{where} shows another host key than known_hosts has; if it was reinstalled, ssh-keygen -R its address"
    if isinstance(error, paramiko.AuthenticationException):
        return f"{where} refuses the log-in ({error}); check Ssh(user, key) in the inventory"
    if isinstance(error, TimeoutError):
        return f"{where} does not answer in time; is the machine on and its address right?"
    if isinstance(error, FileNotFoundError):
        return f"{where}: no key file {error.filename}; check Ssh(key) in the inventory"
    return f"{where}: {error or type(error).__name__}"


def connect_all(
    cluster: Cluster, nodes: Sequence[Node], *, timeout_s: float = 10
) -> tuple[dict[str, Remote], dict[str, str]]:
    """Connect to all nodes side by side: the connected ones by name, and for the others why not."""
    remotes: dict[str, Remote] = {}
    reasons: dict[str, str] = {}

    def one(node: Node) -> None:
        try:
            remotes[node.name] = connect(cluster, node, timeout_s=timeout_s)
        except RemoteError as error:
            reasons[node.name] = str(error)

    with ThreadPoolExecutor(max_workers=max(1, min(CONNECTS_AT_ONCE, len(nodes)))) as pool:
        list(pool.map(one, nodes))
    order = {node.name: index for index, node in enumerate(nodes)}
    return dict(sorted(remotes.items(), key=lambda item: order[item[0]])), reasons
