"""How fast, how evenly and how right a machine computes: matrix products in several precisions, and memory bandwidth.

    python3 compute_load.py --seconds 1        one thread
    python3 compute_load.py --threads 0        all processors of this machine

A repetition takes about REPETITION_S and is timed by itself, so that jitter shows. What it computed is compared bit by
bit with the first result, outside the clock, and the first result with one in double precision. copy and triad are
STREAM's: bytes read and written, arrays far larger than caches.
"""

from __future__ import annotations

import argparse
import os
import time

import torch

REPETITION_S = 0.02
LEAST_REPETITIONS = 5
SIDE = {"cpu": 256, "cuda": 8192}
ARRAY_BYTES = {"cpu": 64 << 20, "cuda": 1 << 30}
TYPES = {"fp64": torch.float64, "fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16,
         "bf16": torch.bfloat16}  # fmt: skip
NEAR = {"fp64": 1e-9, "fp32": 1e-3, "tf32": 5e-2, "fp16": 2e-1, "bf16": 1.0}
"""Largest error of a sum of SIDE products of numbers up to ½; it grows with the root of SIDE."""


def compute(me, command: dict) -> dict:
    """The worker's way in: each kind of `kinds` for `seconds`; sustained runs load the GPU where there is one."""
    from groups import IdleShare, device_of

    device = device_of(me) if command["sustained"] else torch.device("cpu")
    threads = command["threads"] or len(os.sched_getaffinity(0))
    torch.set_num_threads(threads)
    try:
        found = []
        for kind in command["kinds"]:
            me.progress.at("compute", kind)
            idle, cpu = IdleShare(), time.process_time()
            one = measure(kind, device, command["seconds"], me.progress)
            share = (time.process_time() - cpu) / one.pop("wall_s") / threads
            found.append({"what": kind, **one, "cpu_share": round(share, 3), "idle_share": idle.share()})
    finally:
        torch.set_num_threads(1)
    return {"found": found, "device": torch.cuda.get_device_name(device) if device.type == "cuda" else ""}


def measure(kind: str, device: torch.device, seconds: float, progress) -> dict:
    """Repetitions of one kind of work, their times, and whether all gave the right result."""
    began = time.perf_counter()
    if kind in ("copy", "triad"):
        action, check, work = stream(kind, device)
    else:
        action, check, work = product(kind.removeprefix("product-"), device)
    action()
    right = check(first=True)
    times = calibrate(action, device)
    actions, took, end = times, [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(took) < LEAST_REPETITIONS:
        settle(device)
        start = time.perf_counter()
        for _ in range(actions):
            action()
        settle(device)
        took.append(round(time.perf_counter() - start, 6))
        right = check(first=False) and right
        progress.at("compute")
    return {"seconds": took, "work": work * actions, "verified": right, "wall_s": time.perf_counter() - began}


def calibrate(action, device: torch.device) -> int:
    """How many actions fill a repetition; the quickest of three counts, since noise only slows down."""
    quickest = REPETITION_S
    for _ in range(3):
        start = time.perf_counter()
        action()
        settle(device)
        quickest = min(quickest, time.perf_counter() - start)
    return max(1, round(REPETITION_S / max(quickest, 1e-6)))


def product(name: str, device: torch.device):
    """A square product; its first 16 rows are checked against double precision."""
    side, dice = SIDE[device.type], torch.Generator().manual_seed(1)
    a, b = (torch.rand(side, side, generator=dice).sub_(0.5).to(device, TYPES[name]) for _ in "ab")
    kept: list[torch.Tensor] = []
    out = torch.empty_like(a)

    def action() -> None:
        torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
        torch.matmul(a, b, out=out)

    def check(first: bool) -> bool:
        if first:
            kept.append(out.clone())
            exact = a[:16].double().cpu() @ b.double().cpu()
            return bool((out[:16].double().cpu() - exact).abs().max() <= NEAR[name] * max(1.0, side / 256) ** 0.5)
        return torch.equal(out, kept[0])

    return action, check, 2.0 * side**3


def stream(kind: str, device: torch.device):
    """copy: b ← a. triad: c ← a + 3 b."""
    length = ARRAY_BYTES[device.type] // 4
    a = torch.arange(length, dtype=torch.float32, device=device)
    b, c = a.flip(0), torch.zeros_like(a)
    arrays = 2 if kind == "copy" else 3

    def action() -> None:
        if kind == "copy":
            c.copy_(a)
        else:
            torch.add(a, b, alpha=3, out=c)

    def check(first: bool) -> bool:
        """All of it the first time, then one part in 64, another each time."""
        part = slice(None) if first else slice(next(turn) % 64, None, 64)
        return torch.equal(c[part], a[part] if kind == "copy" else torch.add(a[part], b[part], alpha=3))

    turn = iter(range(1 << 30))
    return action, check, float(arrays * 4 * length)


def settle(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class Silent:
    def at(self, phase: str, step: str | None = None) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description="Matrix products and memory bandwidth of this machine's processors.")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--threads", type=int, default=1, help="0: all processors")
    options = parser.parse_args()
    torch.set_num_threads(options.threads or len(os.sched_getaffinity(0)))
    for kind in ("product-fp64", "product-fp32", "product-bf16", "copy", "triad"):
        one = measure(kind, torch.device("cpu"), options.seconds, Silent())
        times = sorted(one["seconds"])
        rate = one["work"] * len(times) / sum(times) / 1e9
        unit = "GB/s" if kind in ("copy", "triad") else "GFLOP/s"
        p50, p99 = (1e3 * times[int(share * len(times))] for share in (0.5, 0.99))
        right = "right" if one["verified"] else "WRONG"
        print(f"{kind:13} {rate:8.3f} {unit:8} p50 {p50:.2f} ms, p99 {p99:.2f} ms, {right}")


if __name__ == "__main__":
    main()
