"""Process groups of a worker: a rendezvous store of its own, two-rank groups for pairs, one world for collectives."""

from __future__ import annotations

import contextlib
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import ProcessGroupGloo

CONNECT_S = 8.0
REST_S = 60.0  # longer than any time-out of a group: its threads are idle by then


def retire(me, group: object) -> None:
    """Keep a group that is not needed any more until its threads are idle, then let it go.

    Its destructor joins them while it holds the interpreter's lock. A thread that is just about to release the last
    reference to a tensor needs that lock: seen in the lab as a rank that hung for ever, without a heartbeat.
    """
    now = time.monotonic()
    me.kept["retired"] = [one for one in me.kept.get("retired", []) if now - one[0] < REST_S] + [(now, group)]


def open_store(me, command: dict) -> dict:
    """Open the store that others meet this rank at; once, on a free port."""
    if "store" not in me.kept:
        me.progress.at("open store")
        me.kept["store"] = dist.TCPStore(
            me.address, 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=CONNECT_S), use_libuv=False
        )
    return {"port": me.kept["store"].port}


def device_of(me) -> torch.device:
    """The rank's GPU if there is one, else the processor. The GPU way is written but was never run."""
    return torch.device("cuda", me.local_rank) if torch.cuda.is_available() else torch.device("cpu")


def store_of(me, peer: dict) -> dist.Store:
    """The store of `peer` (rank, address, port), our own included; connections are kept."""
    if peer["rank"] == me.rank:
        return me.kept["store"]
    stores = me.kept.setdefault("stores", {})
    key = (peer["rank"], peer["port"])
    if key not in stores:
        stores[key] = dist.TCPStore(
            peer["address"], peer["port"], is_master=False, wait_for_workers=False,
            timeout=timedelta(seconds=CONNECT_S), use_libuv=False,
        )  # fmt: skip
    return stores[key]


class Pair:
    """A group of two ranks. Made directly: a group inside a world group can't exist when the world can't."""

    def __init__(self, me, peer: dict, name: str, timeout_s: float) -> None:
        me.progress.at("connect")
        self.me = 0 if me.rank < peer["rank"] else 1
        self.peer = 1 - self.me
        self.device = device_of(me)
        mine = {"rank": me.rank, "address": me.address, "port": 0}
        store = dist.PrefixStore(name, store_of(me, mine if self.me == 0 else peer))
        timeout = timedelta(seconds=timeout_s)
        if self.device.type == "cuda":
            options = dist.ProcessGroupNCCL.Options()
            options._timeout = timeout
            self.group = dist.ProcessGroupNCCL(store, self.me, 2, options)
        else:
            self.group = ProcessGroupGloo(store, self.me, 2, timeout)

    def send(self, tensor: torch.Tensor, tag: int = 0):
        return self.group.send([tensor], self.peer, tag)

    def receive(self, tensor: torch.Tensor, tag: int = 0):
        return self.group.recv([tensor], self.peer, tag)

    def wait(self, work) -> None:
        work.wait()
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def tell(self, value: int) -> None:
        """One number to the other end."""
        self.wait(self.send(torch.tensor([value], dtype=torch.int64, device=self.device), 1))

    def hear(self) -> int:
        number = torch.zeros(1, dtype=torch.int64, device=self.device)
        self.wait(self.receive(number, 1))
        return int(number.item())


def pair_with(me, peer: dict, name: str, timeout_s: float) -> Pair:
    """The group with `peer` called `name`; the launcher gives a new name after any error, so both ends agree."""
    pairs = me.kept.setdefault("pairs", {})
    if peer["rank"] not in pairs or pairs[peer["rank"]][0] != name:
        drop_pair(me, peer)
        pairs[peer["rank"]] = (name, Pair(me, peer, name, timeout_s))
    return pairs[peer["rank"]][1]


def drop_pair(me, peer: dict) -> None:
    if pair := me.kept.get("pairs", {}).pop(peer["rank"], None):
        retire(me, pair)


def drop_pairs(me) -> None:
    """Close all two-rank groups: each holds threads and sockets."""
    for pair in me.kept.pop("pairs", {}).values():
        retire(me, pair)


@contextlib.contextmanager
def world(me, members: list[dict], name: str, timeout_s: float):
    """The default process group of `members`, who meet at the first one's store; gone at the end, whatever happens."""
    me.progress.at("connect")
    drop_pairs(me)
    index = [member["rank"] for member in members].index(me.rank)
    store = dist.PrefixStore(name, store_of(me, members[0]))
    backend = "nccl" if device_of(me).type == "cuda" else "gloo"
    dist.init_process_group(
        backend, store=store, rank=index, world_size=len(members), timeout=timedelta(seconds=timeout_s)
    )
    try:
        yield index
    finally:
        retire(me, dist.group.WORLD)
        with contextlib.suppress(Exception):
            dist.destroy_process_group()


class IdleShare:
    """Idle share of all processors of this machine between two looks."""

    def __init__(self) -> None:
        self._idle, self._all = self._read()

    @staticmethod
    def _read() -> tuple[int, int]:
        ticks = [int(word) for word in Path("/proc/stat").read_text(encoding="ascii").split("\n")[0].split()[1:9]]
        return ticks[3] + ticks[4], sum(ticks)

    def share(self) -> float | None:
        idle, total = self._read()
        return round((idle - self._idle) / (total - self._all), 3) if total > self._all else None
