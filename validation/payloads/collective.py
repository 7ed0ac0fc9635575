"""All-reduce over all ranks at several sizes: every element of every result is verified before a time is believed.

Before it an all-gather, which only carries and never computes: if its parts arrive as sent and sums are wrong, a rank
adds wrongly; if they don't, the part that is wrong says whose it is.
"""

from __future__ import annotations

import time

import torch
import torch.distributed as dist
from groups import IdleShare, device_of, world

PERIOD = 251  # whole numbers below it: sums of thousands of ranks are exact in float32


def contribution(index: torch.Tensor, rank: int) -> torch.Tensor:
    """What one rank brings: differs between ranks and between neighbouring elements."""
    return ((index * 7 + rank * 13) % PERIOD).to(torch.float32)


def all_reduce(me, command: dict) -> dict:
    """Each size `repetitions` times; seconds of each (this rank's) and whether all sums were right."""
    members = command["members"]
    sizes: list[dict] = []
    with world(me, members, command["group"], command["timeout_s"]) as rank:
        device = device_of(me)
        wrong_from = _gather(me, rank, len(members), command["gather_bytes"], device)
        for size, repetitions in command["sizes"]:
            me.progress.at("all-reduce", f"all-reduce of {size} bytes")
            sizes.append(_one_size(me, rank, len(members), size, repetitions, device))
    return {"sizes": sizes, "wrong_from": [members[index]["rank"] for index in wrong_from]}


def _gather(me, rank: int, ranks: int, size: int, device: torch.device) -> list[int]:
    """Members whose part did not arrive here as they sent it."""
    me.progress.at("all-reduce", f"all-gather of {size} bytes a rank")
    index = torch.arange(size // 4, dtype=torch.int32, device=device)
    parts = [torch.zeros(size // 4, device=device) for _ in range(ranks)]
    dist.all_gather(parts, contribution(index, rank))
    _settle(device)
    return [other for other in range(ranks) if not torch.equal(parts[other], contribution(index, other))]


def _one_size(me, rank: int, ranks: int, size: int, repetitions: int, device: torch.device) -> dict:
    index = torch.arange(size // 4, dtype=torch.int32, device=device)
    mine = contribution(index, rank)
    expected = sum((contribution(index, other) for other in range(ranks)), torch.zeros_like(mine))
    signal = torch.zeros(1, device=device)
    seconds, verified, idle = [], True, IdleShare()
    for _ in range(repetitions + 1):
        data = mine.clone()
        dist.all_reduce(signal)  # all start together
        _settle(device)
        began = time.perf_counter()
        dist.all_reduce(data)
        _settle(device)
        seconds.append(time.perf_counter() - began)
        me.progress.at("all-reduce")
        verified &= torch.equal(data, expected)
    warm = seconds[1:]
    return {"bytes": size, "seconds": [round(s, 7) for s in warm], "verified": verified, "idle_share": idle.share()}


def _settle(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
