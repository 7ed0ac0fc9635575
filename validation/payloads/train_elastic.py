"""A training that loses a rank in the middle: torchrun starts it again, and it goes on from its checkpoint.

    export USE_LIBUV=0 TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1        Debian's torch has no libuv; any other does without
    torchrun --nproc-per-node 2 --max-restarts 1 --rdzv-backend c10d --rdzv-conf store_type=file \\
        --rdzv-endpoint /tmp/meet train_elastic.py --folder /tmp/elastic --die-rank 1

The rank DIE-RANK kills itself with SIGKILL once, before step DIE-STEP. Rank 0 writes a checkpoint every SAVE_EVERY
steps; at the end its losses must be those of a training that nothing happened to. validate-cluster calls restart() in
the workers of some nodes: each becomes the parent of one elastic agent.
"""

import argparse
import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

SAVE_EVERY = 2
PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """Nobody is left behind when the worker, or the agent between it and us, is killed."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def restart(me, command: dict) -> dict:
    """One node's elastic agent; what the first rank printed, and what the agent said about the rank that died."""
    members = command["members"]
    index = [member["rank"] for member in members].index(me.rank)
    me.progress.at("elastic agent", f"with {len(members)} nodes")
    agent = subprocess.Popen(
        agent_command(members, index, command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, env={**os.environ, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
    )  # fmt: skip
    end, late = time.monotonic() + command["timeout_s"], ""
    while True:
        try:
            out, said = agent.communicate(timeout=1.0)
            break
        except subprocess.TimeoutExpired:
            me.progress.at("elastic agent")
            if time.monotonic() > end:
                agent.kill()
                late = f"no end within {command['timeout_s']:g} s; "
    sys.stderr.write(said)
    found = re.search(r"exitcode\s*: -?\d+.*|failed \(exitcode: -\d+\)[^\n]*", said)
    result = next((json.loads(line) for line in reversed(out.splitlines()) if line.startswith("{")), {})
    error = "" if agent.returncode == 0 else f"{late}torchrun ended with {agent.returncode}: {last_line(said)}"
    return {"result": result, "reported": found[0][:200] if found else "", "error": error}


def agent_command(members: list, index: int, command: dict) -> list:
    return [
        sys.executable, str(Path(__file__).resolve()), "--agent", f"--nnodes={len(members)}", "--nproc-per-node=1",
        "--max-restarts=1", "--monitor-interval=0.2", f"--rdzv-id={command['id']}", "--rdzv-backend=c10d",
        f"--rdzv-endpoint={command['folder']}/meet", "--rdzv-conf=store_type=file,join_timeout=60",
        f"--local-addr={members[index]['address']}", str(Path(__file__).resolve()),
        "--folder", command["folder"], "--steps", str(command["steps"]), "--seed", str(command["seed"]),
        "--die-rank", str(len(members) - 1), "--die-step", str(command["die_step"]),
    ]  # fmt: skip


def last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no message")[:200]


def train(options: argparse.Namespace) -> dict:
    """DDP with a checkpoint; the losses of all steps, those before the restart out of the checkpoint."""
    import torch
    import torch.distributed as dist
    from train_ddp import Silent
    from train_parallel import Job

    torch.set_num_threads(1)
    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    job = Job(rank, ranks, ranks, options.steps, options.seed, device, Silent())
    model = job.model()
    kept, died = Path(options.folder) / "elastic.pt", Path(options.folder) / "died"
    state = torch.load(kept, map_location=device) if kept.exists() else {"losses": [], "began_at": 0}
    if state["losses"]:
        model.load_state_dict(state["model"])
    whole, began_at = job.ddp(model), len(state["losses"])
    optimizer, losses = job.optimizer(whole), list(state["losses"])
    if losses:
        optimizer.load_state_dict(state["optimizer"])
    for step in range(began_at, options.steps):
        if rank == options.die_rank and step == options.die_step and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        losses += job.train(whole, optimizer, range(step, step + 1))
        if rank == 0 and (step + 1) % SAVE_EVERY == 0:
            new = kept.with_suffix(".new")
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "losses": losses}, new)
            new.replace(kept)
    dist.barrier()
    dist.destroy_process_group()
    return {"losses": losses, "resumed_at": began_at}


def main() -> None:
    end_with_parent()
    if sys.argv[1:2] == ["--agent"]:
        from torch.distributed.run import main as torchrun

        torchrun(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description="Train, lose a rank once, and go on from the checkpoint.")
    parser.add_argument("--folder", required=True)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--die-rank", type=int, default=-1)
    parser.add_argument("--die-step", type=int, default=5)
    options = parser.parse_args()
    Path(options.folder).mkdir(parents=True, exist_ok=True)
    result = train(options)
    if os.environ.get("RANK") == "0":
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
