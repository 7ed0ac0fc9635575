"""Plain TCP between nodes, before torch may hang on it: listen on high ports, connect to all, say who answered."""

from __future__ import annotations

import contextlib
import errno
import selectors
import socket
import threading
import time
from pathlib import Path

PORTS = 4  # a firewall that blocks a part of the range must be noticed: torch takes any port of it
NAME_BYTES = 64
FILLER_S = 5.0
FILLER_BYTES = 20 << 10  # two frames of 9,000 bytes and more: a path that drops large packets passes the name only


def idle(me, command: dict) -> None:
    """Wait, so that the launcher's deadlines can be tried without torch."""
    me.progress.at(command.get("phase", "idle"), command.get("step", ""))
    if command.get("fail"):
        raise RuntimeError(command["fail"])
    end = time.monotonic() + command["seconds"]
    while time.monotonic() < end:
        time.sleep(0.05)
        if command.get("moving"):
            me.progress.at(me.progress.phase)


def port_range() -> tuple[int, int]:
    """The range that the kernel takes free ports from, as torch does."""
    with contextlib.suppress(OSError, ValueError):
        low, high = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()
        return int(low), int(high)
    return 32768, 60999


def listen(me, command: dict) -> dict:
    """Listen on ports spread over the kernel's range, and tell everybody who connects which node this is."""
    me.progress.at("listen")
    for sock in me.kept.pop("listeners", []):
        sock.close()
    low, high = port_range()
    sockets, ports = [], []
    for part in range(PORTS):
        start = low + (high - low) * part // PORTS + 7 * me.local_rank
        sock = _bind_first_free(me.address, start, low + (high - low) * (part + 1) // PORTS)
        if sock:
            sockets.append(sock)
            ports.append(sock.getsockname()[1])
            threading.Thread(target=_greet, args=(sock, me.node), daemon=True).start()
    me.kept["listeners"] = sockets
    return {"ports": ports}


def _bind_first_free(address: str, start: int, end: int) -> socket.socket | None:
    for port in range(start, min(end, start + 200)):
        sock = socket.socket()
        try:
            sock.bind((address, port))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * FILLER_BYTES)  # all of it, without waiting
            sock.listen(128)
        except OSError:
            sock.close()
            continue
        return sock
    return None


def _greet(sock: socket.socket, node: str) -> None:
    while True:
        try:
            peer, _ = sock.accept()
        except OSError:
            return
        with contextlib.suppress(OSError), peer:
            peer.settimeout(FILLER_S)
            peer.sendall(node.encode().ljust(NAME_BYTES))
            peer.sendall(bytes(FILLER_BYTES))


def reach(me, command: dict) -> dict:
    """Connect to every (node, address, port) at once; an answer each, within timeout_s."""
    me.progress.at("connect")
    deadline = time.monotonic() + command["timeout_s"]
    waiting = selectors.DefaultSelector()
    answers: list[dict] = []
    for node, address, port in command["targets"]:
        sock = socket.socket()
        sock.setblocking(False)
        entry = {"node": node, "port": port, "began": time.monotonic(), "connect_ms": None, "ok": False, "error": ""}
        entry["said"] = b""
        answers.append(entry)
        code = sock.connect_ex((address, port))
        if code not in (0, errno.EINPROGRESS):
            entry["error"] = _word(code)
            sock.close()
            continue
        waiting.register(sock, selectors.EVENT_WRITE, entry)
    while waiting.get_map() and (left := deadline - time.monotonic()) > 0:
        for key, _ in waiting.select(left):
            _advance(waiting, key)
    for key in list(waiting.get_map().values()):
        named = len(key.data["said"]) >= NAME_BYTES
        key.data["error"] = "timeout" if key.data["connect_ms"] is None else "large-packets" if named else "silent"
        key.fileobj.close()
    waiting.close()
    for entry in answers:
        entry.pop("began")
        entry.pop("said")
    return {"answers": answers}


def _advance(waiting: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
    sock, entry = key.fileobj, key.data
    if entry["connect_ms"] is None:
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if not code:
            entry["connect_ms"] = round((time.monotonic() - entry["began"]) * 1e3, 3)
            waiting.modify(sock, selectors.EVENT_READ, entry)
            return
        entry["error"] = _word(code)
    else:
        try:
            more = sock.recv(1 << 16)
            entry["said"] += more
            if more and len(entry["said"]) < NAME_BYTES + FILLER_BYTES:
                return
            name = entry["said"][:NAME_BYTES].decode("ascii", "replace").strip()
            entry["ok"] = name == entry["node"] and len(entry["said"]) == NAME_BYTES + FILLER_BYTES
            by = "cut-off" if name == entry["node"] else f"answered by {name or 'nobody'}"
            entry["error"] = "" if entry["ok"] else by
        except OSError as error:
            entry["error"] = _word(error.errno or 0)
    waiting.unregister(sock)
    sock.close()


def _word(code: int) -> str:
    words = {
        errno.ECONNREFUSED: "refused", errno.ETIMEDOUT: "timeout", errno.ECONNRESET: "reset",
        errno.EHOSTUNREACH: "no-route", errno.ENETUNREACH: "no-route",
    }  # fmt: skip
    return words.get(code, errno.errorcode.get(code, str(code)).lower())
