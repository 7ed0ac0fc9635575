"""Load every GPU of a node and print what it did as one JSON document (torch and nvidia-smi; standard library else).

Launch: python3 gpu_load.py [--seconds 3] [--device cuda|cpu]      (cpu: the same way with small sizes, for rehearsals)

A card: matrix products in each precision it has, checked against a second run and a reference; copies within its
memory; copies from and to pinned host memory; what nvidia-smi says of link, clocks, heat and power meanwhile.
Between cards: copies with verification, in a process of their own, since a broken one hangs for good.
Warm-up is left out of every time: the first products also compile and raise the clocks.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time

PEER_DEADLINE_S = 20.0
FIELDS = ("pcie.link.gen.current", "pcie.link.width.current", "clocks.sm", "temperature.gpu", "power.draw",
          "clocks_throttle_reasons.hw_slowdown", "clocks_throttle_reasons.hw_thermal_slowdown",
          "clocks_throttle_reasons.hw_power_brake_slowdown", "clocks_throttle_reasons.sw_thermal_slowdown",
          "clocks_throttle_reasons.sw_power_cap")  # fmt: skip


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--seconds", type=float, default=3.0, help="of load, a card and kind")
    arguments.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    arguments.add_argument("--peer", nargs=2, type=int, help="for its own use: copy from one card to another")
    asked = arguments.parse_args()
    if asked.peer:
        print(json.dumps(copy_between(*asked.peer)))
        return
    import torch

    count = torch.cuda.device_count() if asked.device == "cuda" else 1
    before = kernel_lines()
    cards = [measure(torch, asked.device, index, asked.seconds) for index in range(count)]
    peers = [peer(src, dst) for src in range(count) for dst in range(count) if src != dst]
    new = [line for line in kernel_lines() if line not in set(before)]
    json.dump({"torch": torch.__version__, "cards": cards, "peers": peers, "kernel": new}, sys.stdout)


def kernel_lines():
    """Messages of NVIDIA's driver; none where the log may not be read."""
    try:
        found = subprocess.run(("dmesg",), capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line for line in found.stdout.splitlines() if "NVRM:" in line]


# --- one card ----------------------------------------------------------------------------------------------------


def measure(torch, kind, index, seconds):
    device = torch.device(kind, index) if kind == "cuda" else torch.device("cpu")
    size = 8192 if kind == "cuda" else 256
    known = identity(torch, kind, index)
    rates, right = {}, {}
    for name in precisions(torch, kind, index):
        rates[name], right[name] = products(torch, device, name, size, seconds)
    return {
        **known,
        "gemm_tflops": rates,
        "gemm_ok": right,
        "memory_gbytes_s": memory(torch, device, seconds),
        **host_copies(torch, device, index, seconds),
    }


def identity(torch, kind, index):
    if kind == "cpu":
        return {"index": 0, "name": "cpu", "uuid": "cpu", "bus_id": "cpu"}
    found = torch.cuda.get_device_properties(index)
    asked = smi(index, ("uuid", "pci.bus_id"))
    return {"index": index, "name": found.name, "uuid": asked["uuid"], "bus_id": asked["pci.bus_id"]}


def precisions(torch, kind, index):
    if kind == "cpu":
        return ["fp32", "bf16"]
    major, minor = torch.cuda.get_device_capability(index)
    names = ["fp32", "fp16"]
    if major >= 8:
        names += ["tf32", "bf16"]
    if (major, minor) >= (8, 9) and hasattr(torch, "float8_e4m3fn") and hasattr(torch, "_scaled_mm"):
        names.append("fp8")
    return names


def products(torch, device, name, size, seconds):
    """TFLOP/s of size³ products, and whether they are the same twice and near those of 64 bits."""
    types = {"fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16,
             "fp8": torch.float16}  # fmt: skip
    torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
    source = torch.Generator(device="cpu").manual_seed(1)
    a, b = (torch.rand(size, size, generator=source).sub_(0.5).to(device, types[name]) for _ in "ab")
    one = torch.ones((), device=device)
    if name == "fp8":
        a, b = a.to(torch.float8_e4m3fn), b.t().contiguous().to(torch.float8_e4m3fn).t()

        def multiply():
            return torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=torch.float16)
    else:

        def multiply():
            return a @ b

    first = multiply()
    synchronise(torch, device)
    took, done = run_for(torch, device, multiply, seconds)
    rows = slice(0, 32)
    exact = a[rows].double().cpu() @ b.double().cpu() if size <= 8192 else None
    # The error of a sum of `size` products of numbers up to ½ grows with its square root.
    bound = {"fp32": 1e-4, "tf32": 2e-2, "fp16": 5e-2, "bf16": 3e-1, "fp8": 1.0}[name] * max(1.0, size / 8192) ** 0.5
    near = exact is None or (first[rows].double().cpu() - exact).abs().max().item() <= bound
    same = bool(torch.equal(first, multiply()))
    return round(2 * size**3 * done / took / 1e12, 3), bool(near and same)


def memory(torch, device, seconds):
    """GB/s read plus written of a copy within the card."""
    size = 2**30 if device.type == "cuda" else 2**24
    source = torch.empty(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    took, done = run_for(torch, device, lambda: target.copy_(source), seconds)
    return round(2 * size * done / took / 1e9, 1)


def host_copies(torch, device, index, seconds):
    """GB/s from and to pinned memory, and the card's state while it copies and multiplies."""
    if device.type == "cpu":
        return {"h2d_gbytes_s": None, "d2h_gbytes_s": None, "under_load": {}}
    size = 2**28
    host = torch.empty(size, dtype=torch.uint8, pin_memory=True)
    card = torch.empty(size, dtype=torch.uint8, device=device)
    states = []

    def to_card():
        card.copy_(host, non_blocking=True)

    rates = []
    for copy in (to_card, lambda: host.copy_(card, non_blocking=True)):
        for _ in range(8):
            copy()  # asynchronous: nvidia-smi is asked while these are under way
        states.append(state(index))
        synchronise(torch, device)
        took, done = run_for(torch, device, copy, seconds)
        rates.append(round(size * done / took / 1e9, 2))
    a = torch.rand(8192, 8192, device=device, dtype=torch.float16)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(20):
            a @ a
        to_card()
        hot = state(index)
        synchronise(torch, device)
    # The link of the copies (the best seen: asking may fall into a pause), clocks and heat of the products.
    for key in ("link_gen", "link_width"):
        hot[key] = max([one[key] for one in (*states, hot) if one[key] is not None], default=None)
    return {"h2d_gbytes_s": rates[0], "d2h_gbytes_s": rates[1], "under_load": hot}


def run_for(torch, device, action, seconds):
    """Time and number of repetitions after two unmeasured ones."""
    for _ in range(2):
        action()
    synchronise(torch, device)
    began, done = time.monotonic(), 0
    while time.monotonic() - began < seconds:
        for _ in range(4):
            action()
        synchronise(torch, device)
        done += 4
    return time.monotonic() - began, done


def synchronise(torch, device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def smi(index, fields):
    """nvidia-smi's words for some fields of a card."""
    words = ("nvidia-smi", f"--id={index}", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits")
    found = subprocess.run(words, capture_output=True, text=True, timeout=20, check=True)
    return dict(zip(fields, (word.strip() for word in found.stdout.strip().split(",")), strict=True))


def state(index):
    found = smi(index, FIELDS)
    slowed = [name.rsplit(".", 1)[1] for name in FIELDS[5:] if found[name] == "Active"]
    return {
        "link_gen": number(found[FIELDS[0]]),
        "link_width": number(found[FIELDS[1]]),
        "sm_clock_mhz": number(found[FIELDS[2]]),
        "temperature_c": number(found[FIELDS[3]]),
        "power_w": number(found[FIELDS[4]]),
        "slowed_by": slowed,
    }


def number(word):
    try:
        return float(word) if "." in word else int(word)
    except ValueError:
        return None


# --- between cards -----------------------------------------------------------------------------------------------


def peer(src, dst):
    """One direction, in a process with a deadline: broken peer copies hang or give wrong data."""
    command = (sys.executable, sys.argv[0], "--peer", str(src), str(dst))
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        out, _ = child.communicate(timeout=PEER_DEADLINE_S)
        return json.loads(out)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        error = f"no end in {PEER_DEADLINE_S:g} s"
    except ValueError:
        error = f"ended with status {child.returncode}"
    return {"src": src, "dst": dst, "gbytes_s": 0.0, "ok": False, "error": error}


def copy_between(src, dst):
    import torch

    size, rounds = 2**26, 8
    source = torch.randint(0, 256, (size,), dtype=torch.uint8, device=f"cuda:{src}")
    target = torch.zeros(size, dtype=torch.uint8, device=f"cuda:{dst}")
    target.copy_(source)
    torch.cuda.synchronize(dst)
    right = bool(torch.equal(source.cpu(), target.cpu()))
    began = time.monotonic()
    for _ in range(rounds):
        target.copy_(source)
    torch.cuda.synchronize(src)
    torch.cuda.synchronize(dst)
    rate = size * rounds / (time.monotonic() - began) / 1e9
    return {"src": src, "dst": dst, "gbytes_s": round(rate, 2), "ok": right, "error": "" if right else "wrong data"}


if __name__ == "__main__":
    main()
