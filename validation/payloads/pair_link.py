"""One link, measured by its two ends: verified messages one way, then the other, and small ones back and forth.

A flow is led by its receiver, who has the only clock that matters: the sender says ready, the receiver says go, a
probe message tells the speed, the receiver chooses the size, and then messages come back to back. The time between the
ends of two messages is the measurement: no round trip and no full token bucket is in it, as the first is left out.
"""

from __future__ import annotations

import itertools
import statistics
import threading
import time

import torch
from groups import IdleShare, Pair, device_of, drop_pair, pair_with

PROBE_BYTES = 1 << 20
LEAST_BYTES = 1 << 16
OFFSETS = 4096
PINGS, LATENCY_S = 100, 0.4
FAN_CHUNKS = 12


def pattern(me, size: int) -> torch.Tensor:
    """Seeded bytes, the same on every node; a message is a window into them, so no two in a row are alike."""
    base = me.kept.get("pattern")
    if base is None or base.numel() < size + OFFSETS:
        words = (size + OFFSETS) // 8 + 1
        numbers = torch.randint(
            -(2**62), 2**62, (words,), generator=torch.Generator().manual_seed(20), dtype=torch.int64
        )
        base = me.kept["pattern"] = numbers.view(torch.uint8).to(device_of(me))
    return base


def window(me, size: int, seed: int, index: int) -> torch.Tensor:
    """Message `index` of a flow; multiplied by a prime so that neighbours lie far apart."""
    offset = (seed * 31 + index * 1009) % OFFSETS
    return pattern(me, size)[offset : offset + size]


# --- one flow ----------------------------------------------------------------------------------------------------


def send_flow(me, link: Pair, seed: int) -> None:
    """Be the sender of a flow: all it needs to know is told by the receiver."""
    link.tell(1)
    probe, size, count = link.hear(), 0, 0
    if probe:
        link.wait(link.send(window(me, probe, seed, 0), 2))
    first, size, count = link.hear(), link.hear(), link.hear()
    works = [link.send(window(me, first if index == 0 else size, seed, index), 3) for index in range(count)]
    for work in works:
        link.wait(work)


class Flow:
    """The receiver of a flow: `gbps` of each message after the first, and whether every byte was right."""

    def __init__(self, me, link: Pair, seed: int) -> None:
        self.me, self.link, self.seed = me, link, seed
        self.gbps: list[float] = []
        self.verified = True
        self.size, self.rate = 0, 0.0
        self.bytes, self.seconds = 0, 0.0

    def probe(self, most_bytes: int, messages: float, budget_s: float) -> None:
        """One message to learn the speed; then the size with which `messages` of them fit into the budget."""
        self.link.hear()
        buffer = torch.zeros(PROBE_BYTES, dtype=torch.uint8, device=self.link.device)
        work = self.link.receive(buffer, 2)
        began = time.monotonic()
        self.link.tell(PROBE_BYTES)
        self.link.wait(work)
        self.rate = PROBE_BYTES / (time.monotonic() - began)
        self.verified &= torch.equal(buffer, window(self.me, PROBE_BYTES, self.seed, 0))
        self.size = max(LEAST_BYTES, min(most_bytes, int(self.rate * budget_s / messages))) // 8 * 8

    def skip_probe(self) -> None:
        """For a second flow whose size is known already."""
        self.link.hear()
        self.link.tell(0)

    def take(self, count: int, first_bytes: int) -> None:
        """`count` messages, a shorter first one that is only verified, then those that are timed too."""
        sizes = [first_bytes] + [self.size] * (count - 1)
        buffers = [torch.zeros(size, dtype=torch.uint8, device=self.link.device) for size in sizes]
        works = [self.link.receive(buffer, 3) for buffer in buffers]
        began = time.monotonic()
        for number in (first_bytes, self.size, count):
            self.link.tell(number)
        ends = []
        for index, work in enumerate(works):
            self.link.wait(work)
            ends.append(time.monotonic())
            self.me.progress.at(f"message {index}")
        self.bytes, self.seconds = sum(sizes), ends[-1] - began
        self.gbps += [self.size * 8 / 1e9 / max(after - before, 1e-9) for before, after in itertools.pairwise(ends)]
        for index, (size, buffer) in enumerate(zip(sizes, buffers, strict=True)):
            self.verified &= torch.equal(buffer, window(self.me, size, self.seed, index))


def ping(me, link: Pair) -> list[float]:
    """Half round trips of 8 bytes, p50 and p99 in µs; fewer of them where the way is long."""
    ball, times, end = torch.zeros(1, dtype=torch.int64, device=link.device), [], time.monotonic() + LATENCY_S
    for index in range(PINGS):
        last = index == PINGS - 1 or (index >= 10 and time.monotonic() > end)
        ball[0] = 0 if last else 1
        began = time.perf_counter()
        link.wait(link.send(ball, 4))
        link.wait(link.receive(ball, 5))
        times.append((time.perf_counter() - began) / 2 * 1e6)
        if last:
            break
    times = sorted(times[2:])
    return [round(statistics.median(times), 1), round(times[min(len(times) - 1, int(len(times) * 0.99))], 1)]


def pong(me, link: Pair) -> None:
    ball = torch.zeros(1, dtype=torch.int64, device=link.device)
    while True:
        link.wait(link.receive(ball, 4))
        more = int(ball[0])
        link.wait(link.send(ball, 5))
        if not more:
            return


# --- operations of the worker ------------------------------------------------------------------------------------


def pair(me, command: dict) -> dict:
    """Measure the link to `peer` both ways; what was measured before an error is told too, with the error."""
    peer, seed = command["peer"], command["seed"]
    me.progress.at("pair", f"round {command['round']} with {peer['node']}")
    found: dict = {"received": None, "latency_us": [], "error": ""}
    idle, began = IdleShare(), time.monotonic()
    try:
        link = pair_with(me, peer, command["group"], command["timeout_s"])
        first = command.get("leads", link.me == 0)
        for leads in (first, not first):
            me.progress.at("latency")
            if leads:
                found["latency_us"] = ping(me, link)
            else:
                pong(me, link)
            me.progress.at("messages")
            if leads:
                send_flow(me, link, seed)
            else:
                found["received"] = _receive(me, link, command)
            found["direction_s"] = [*found.get("direction_s", []), round(time.monotonic() - began, 3)]
    except Exception as error:  # an error is this round's result, not the end of the worker
        drop_pair(me, peer)
        found["error"] = f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[-1]}"[:300]
    if not command.get("keep", True):
        drop_pair(me, peer)
    found["idle_share"] = idle.share()
    return found


def _receive(me, link: Pair, command: dict) -> dict:
    flow = Flow(me, link, command["seed"])
    count = command["repetitions"]
    flow.probe(command["message_bytes"], count + 0.25, command["budget_s"])
    flow.take(count + 1, max(LEAST_BYTES, flow.size // 4) // 8 * 8)
    return {"gbps": [round(one, 5) for one in flow.gbps], "bytes": flow.size, "verified": flow.verified}


def fan(me, command: dict) -> dict:
    """Two partners and one target: first alone, then together. Each end calls this; receivers tell what they saw.

    The order on every end: first partner alone, second partner alone (only to choose sizes), both at the same time.
    What counts is bytes and seconds of whole flows: single messages of two flows that take turns look twice as fast.
    """
    me.progress.at("fan", f"fan-{command['direction']} at {command['target']}")
    links = [pair_with(me, peer, command["groups"][index], command["timeout_s"]) for index, peer in _peers(command)]
    receives = (command["direction"] == "in") == command["is_target"]
    try:
        flows = [Flow(me, link, command["seed"]) for link in links]
        alone = []
        for link, flow in zip(links, flows, strict=True):
            if receives:
                flow.probe(command["message_bytes"], FAN_CHUNKS, command["budget_s"])
                flow.take(FAN_CHUNKS, flow.size)
                alone.append([flow.bytes, flow.seconds])
            else:
                send_flow(me, link, command["seed"])
        me.progress.at("both at once")
        _at_once([_again(me, link, flow, receives) for link, flow in zip(links, flows, strict=True)])
        together = [[flow.bytes, flow.seconds] for flow in flows if receives]
        return {"alone": alone, "together": together, "verified": all(flow.verified for flow in flows)}
    except Exception:
        for _, peer in _peers(command):
            drop_pair(me, peer)
        raise


def _peers(command: dict) -> list[tuple[int, dict]]:
    return [(index, peer) for index, peer in enumerate(command["peers"]) if peer is not None]


def _again(me, link: Pair, flow: Flow, receives: bool):
    def job() -> None:
        if receives:
            flow.skip_probe()
            flow.take(FAN_CHUNKS, flow.size)
        else:
            send_flow(me, link, flow.seed)

    return job


def _at_once(jobs: list) -> None:
    """Run the jobs side by side (torch lets go of the interpreter while it waits); the first error is raised."""
    errors: list[Exception] = []

    def guarded(job) -> None:
        try:
            job()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
