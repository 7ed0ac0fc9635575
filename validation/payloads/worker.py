"""The worker of one rank: lives for a whole run, takes commands as JSON lines and tells each second that it is alive.

Launched by validate-cluster on a node (the folder holds these files and fleet.json), or by hand to look at it:

    python3 worker.py fleet.json --rank 0          one rank of fleet.json, over ssh
    srun python3 worker.py fleet.json --slurm      the rank of fleet.json that belongs to this task

In:   {"to": rank or null, "id": 7, "op": "reach", …}      one line a command; "ping" only says that we are wanted
Out:  @RANK=JSON, or @RANK+PART … @RANK=PART               lines stay short because srun cuts long ones

It ends when its stdin ends, or when nobody pinged it for LEASE_S, and takes its folder with it.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import importlib
import json
import os
import queue
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path

HEARTBEAT_S, LEAST_BEAT_S = 1.0, 0.25  # a new step is told at once, but not every one of many
LEASE_S = 90.0
PART_CHARS = 800  # slurmstepd sends at most 1 KiB at once and srun ends every piece with a newline

# op → module:function, imported at first use: a worker without torch still answers what needs none
OPS = {
    "idle": "reach:idle",
    "listen": "reach:listen",
    "reach": "reach:reach",
    "open": "groups:open_store",
    "pair": "pair_link:pair",
    "fan": "pair_link:fan",
    "all_reduce": "collective:all_reduce",
    "train": "train_ddp:train_rank",
    "fingerprint": "fingerprint:fingerprint",
    "compute": "compute_load:compute",
    "acceptance": "train_parallel:accept",
    "restart": "train_elastic:restart",
}


class Progress:
    """Where the rank is: shown by every heartbeat, so that whoever watches can tell slow from stuck."""

    def __init__(self) -> None:
        self.title, self.step, self.phase, self.count = "", "", "start", 0
        self.news = threading.Event()

    def at(self, phase: str, step: str | None = None) -> None:
        self.phase, self.count = phase, self.count + 1
        if step is not None:
            self.step = step
            self.news.set()

    def rest(self) -> None:
        """Between commands."""
        self.title = self.step = ""
        self.at("waiting for a command")

    def beat(self, number: int) -> dict:
        step = ", ".join(part for part in (self.title, self.step) if part)
        return {"beat": number, "step": step, "phase": self.phase, "count": self.count}


class Voice:
    """The one way out; parts of a message are never mixed with another's."""

    def __init__(self, rank: int, fd: int) -> None:
        self.rank, self.fd, self._lock = rank, fd, threading.Lock()

    def say(self, message: dict) -> None:
        text = json.dumps(message, separators=(",", ":"))
        parts = [text[start : start + PART_CHARS] for start in range(0, len(text), PART_CHARS)]
        lines = [f"@{self.rank}+{part}\n" for part in parts[:-1]] + [f"@{self.rank}={parts[-1]}\n"]
        data = "".join(lines).encode("ascii")
        with self._lock:
            while data:
                data = data[os.write(self.fd, data) :]


class Me:
    """What every operation gets: who this rank is, where it is, and what lives on between operations."""

    def __init__(self, fleet: dict, mine: dict) -> None:
        self.rank, self.node, self.address = mine["rank"], mine["node"], mine["address"]
        self.local_rank = mine["local_rank"]
        self.fleet = fleet
        self.progress = Progress()
        self.kept: dict = {}


def interface_of(address: str) -> str:
    """Name of the interface that holds the address; LookupError if none does."""
    out = subprocess.run(["ip", "-o", "-4", "addr", "show"], capture_output=True, text=True, timeout=5, check=False)
    for line in out.stdout.splitlines():
        words = line.split()
        if len(words) > 3 and words[3].split("/")[0] == address:
            return words[1].split("@")[0]
    held = sorted(re.findall(r"inet ([0-9.]+)", out.stdout))
    raise LookupError(f"no interface of {socket.gethostname()} holds {address}, only {', '.join(held)}")


def pin_environment(me: Me) -> None:
    """Before torch is imported: one thread, and the interface of the declared address instead of a guess."""
    name = interface_of(me.address)
    os.environ.update(
        OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", USE_LIBUV="0",
        CUBLAS_WORKSPACE_CONFIG=":4096:8",  # without it no deterministic product on CUDA
        GLOO_SOCKET_IFNAME=name, NCCL_SOCKET_IFNAME=f"={name}", TORCH_NCCL_ASYNC_ERROR_HANDLING="1",
    )  # fmt: skip


def choose_rank(fleet: dict, by_slurm: bool, rank: int | None) -> dict:
    """The entry of fleet.json that this process is."""
    if by_slurm:
        node, local = os.environ["SLURMD_NODENAME"], int(os.environ.get("SLURM_LOCALID", "0"))
        return next(one for one in fleet["ranks"] if (one["node"], one["local_rank"]) == (node, local))
    return next(one for one in fleet["ranks"] if one["rank"] == rank)


class Inbox:
    """Reads commands beside the work, so that the end of stdin ends the process even in the middle of a collective."""

    def __init__(self, me: Me, folder: Path) -> None:
        self.commands: queue.Queue = queue.Queue()
        self.heard = time.monotonic()
        self._me, self._folder = me, folder

    def read(self) -> None:
        rest = b""
        while True:
            try:
                data = os.read(0, 65536)
            except OSError:
                data = b""
            if not data:
                self.leave()
            self.heard = time.monotonic()
            *lines, rest = (rest + data).split(b"\n")
            for line in filter(None, lines):
                command = json.loads(line)
                if command.get("to") in (None, self._me.rank) and command["op"] != "ping":
                    self.commands.put(command)

    def leave(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        os._exit(0)  # the main thread may be stuck in a collective that nobody will ever complete


def heartbeat(me: Me, voice: Voice, inbox: Inbox) -> None:
    """Tell each second, and at a new step, where the rank is; go when nobody listens or nobody wants us any more."""
    beat = 0
    while True:
        beat += 1
        try:
            voice.say(me.progress.beat(beat))
        except OSError:
            inbox.leave()
        if time.monotonic() - inbox.heard > LEASE_S:
            inbox.leave()
        time.sleep(LEAST_BEAT_S)
        me.progress.news.wait(HEARTBEAT_S - LEAST_BEAT_S)
        me.progress.news.clear()


def answer(me: Me, command: dict) -> dict:
    """Do one command; whatever it raises becomes an answer, with the traceback in the log."""
    try:
        module, name = OPS[command["op"]].split(":")
        function = getattr(importlib.import_module(module), name)
        return {"id": command["id"], "ok": True, **(function(me, command) or {})}
    except Exception as error:  # the launcher decides what it means
        traceback.print_exc()
        last = (str(error).strip().splitlines() or [""])[-1]
        return {"id": command["id"], "ok": False, "type": type(error).__name__, "error": last[:500]}
    finally:
        me.progress.rest()


def get_ready(me: Me) -> dict:
    """Import torch (the slow part) and say which one; without torch only the network probe works."""
    started = time.monotonic()
    if not me.fleet.get("torch", True):
        return {"ready": True, "torch": ""}
    me.progress.at("import torch")
    import torch

    torch.set_num_threads(1)
    return {"ready": True, "torch": torch.__version__, "import_s": round(time.monotonic() - started, 2)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("fleet", type=Path)
    parser.add_argument("--rank", type=int)
    parser.add_argument("--slurm", action="store_true")
    options = parser.parse_args()
    fleet = json.loads(options.fleet.read_text(encoding="utf-8"))
    if not options.slurm:
        with contextlib.suppress(OSError):  # a group of its own, so that it can be killed with all it starts
            os.setsid()
    me = Me(fleet, choose_rank(fleet, options.slurm, options.rank))
    voice = Voice(me.rank, os.dup(1))
    faulthandler.register(signal.SIGUSR1, all_threads=True)  # a rank that hangs can still say where
    os.dup2(2, 1)  # a stray print goes to the log, never between the answers
    inbox = Inbox(me, options.fleet.resolve().parent)
    voice.say({"hello": True, "pid": os.getpid(), "job": os.environ.get("SLURM_JOB_ID", "")})
    threading.Thread(target=inbox.read, daemon=True).start()
    threading.Thread(target=heartbeat, args=(me, voice, inbox), daemon=True).start()
    try:
        pin_environment(me)
        ready = get_ready(me)
    except Exception as error:
        traceback.print_exc()
        voice.say({"ready": False, "type": type(error).__name__, "error": str(error)[:500]})
        sys.exit(3)
    me.progress.rest()
    voice.say(ready)
    while True:
        voice.say(answer(me, inbox.commands.get()))


if __name__ == "__main__":
    main()
