"""Train a tiny language model on text made on the spot, alone or with DistributedDataParallel.

    python3 train_ddp.py --steps 40                                     one process
    torchrun --standalone --nproc-per-node 2 train_ddp.py --steps 40    two processes on one machine
    torchrun --nnodes 2 --nproc-per-node 1 --rdzv-backend c10d --rdzv-endpoint HEAD:29500 train_ddp.py   two machines

validate-cluster calls train_rank() inside its workers instead. Everything follows from one seed: the text, the first
weights, the order of the batches. A process that stands for n others (--shards n) sees the batch of all of them, one
shard after the other, so its losses are what n ranks must get.

Timing: a step's clock runs from before the forward pass to after the update; the gradients are all-reduced inside
backward() by a hook that waits, so that step = compute + communication. The first WARMUP steps are not timed.
"""

import argparse
import contextlib
import ctypes
import hashlib
import json
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

VOCABULARY, CONTEXT, WIDTH, HEADS, LAYERS = 64, 16, 64, 4, 2
LOCAL_BATCH = 4
# Debian's torch multiplies matrices with the reference BLAS, 2 GFLOP/s a core (measured): the blocks are small, and
# most of the parameters, which are what the network carries, lie in a table that costs no multiplication.
LEARNING_RATE, MOMENTUM = 0.1, 0.9
WARMUP = 3


# --- data: text in which each letter is followed by one of four others ----------------------------------------------


def make_text(seed: int, letters: int = 65536) -> torch.Tensor:
    """A seeded Markov chain: what a model can learn is the table of followers (loss from ln 64 towards ln 4)."""
    dice = torch.Generator().manual_seed(seed)
    followers = torch.randint(VOCABULARY, (VOCABULARY, 4), generator=dice).tolist()
    choices = torch.randint(4, (letters,), generator=dice).tolist()
    text, letter = [], 0
    for choice in choices:
        letter = followers[letter][choice]
        text.append(letter)
    return torch.tensor(text)


def batch(text: torch.Tensor, seed: int, step: int, shard: int, shards: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Shard `shard` of the global batch of a step: inputs and targets, each LOCAL_BATCH × CONTEXT."""
    dice = torch.Generator().manual_seed(seed * 1_000_003 + step)
    starts = torch.randint(len(text) - CONTEXT - 1, (shards * LOCAL_BATCH,), generator=dice)
    mine = starts[shard * LOCAL_BATCH : (shard + 1) * LOCAL_BATCH, None] + torch.arange(CONTEXT + 1)
    window = text[mine]
    return window[:, :-1], window[:, 1:]


# --- model: a small GPT ------------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, w = x.shape
        q, k, v = (part.view(b, t, HEADS, w // HEADS).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1))
        seen = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(b, t, w))
        return x + self.mlp(self.norm2(x))


class TinyGpt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.letters, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.pairs = nn.Embedding(VOCABULARY * VOCABULARY, WIDTH)  # a letter with the one before it
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)

    def embed(self, inputs: torch.Tensor) -> torch.Tensor:
        before = nn.functional.pad(inputs[:, :-1], (1, 0))
        places = self.places(torch.arange(inputs.shape[1], device=inputs.device))
        return self.letters(inputs) + self.pairs(before * VOCABULARY + inputs) + places

    def forward(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return loss_of(self.head(self.norm(self.blocks(self.embed(inputs)))), targets)


def loss_of(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def parameter_sha256(model: nn.Module) -> str:
    """Hash of all parameters, bit by bit, in the order of their names."""
    digest = hashlib.sha256()
    for name, parameter in sorted(model.state_dict().items()):
        flat = parameter.detach().cpu().contiguous()
        digest.update(name.encode())
        digest.update(ctypes.string_at(flat.data_ptr(), flat.numel() * flat.element_size()))
    return digest.hexdigest()


# --- training ----------------------------------------------------------------------------------------------------


class Communication:
    """The DDP hook: the mean of one bucket over all ranks, waited for, timed and counted."""

    def __init__(self, progress, device: torch.device) -> None:
        self.progress, self.device = progress, device
        self.seconds, self.bytes = 0.0, 0

    def reduce(self, _state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        gradients = bucket.buffer()
        settle(self.device)  # what was computed so far is not communication
        self.progress.at("all-reduce")
        began = time.perf_counter()
        dist.all_reduce(gradients)
        settle(self.device)
        self.seconds += time.perf_counter() - began
        self.progress.at("backward")
        self.bytes += gradients.numel() * gradients.element_size()
        done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        done.set_result(gradients.div_(dist.get_world_size()))
        return done


def settle(device: torch.device) -> None:
    """Let the GPU finish before a clock is read."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class Training:
    """One rank's model, its optimizer, and what its steps took.

    With shards > 1 it stands for so many ranks; with portion > 1 it takes so many shards as one batch.
    """

    def __init__(
        self, *, seed: int, rank: int, ranks: int, shards: int, ddp: bool, device: torch.device, progress,
        portion: int = 1,
    ) -> None:  # fmt: skip
        torch.manual_seed(seed)
        torch.use_deterministic_algorithms(device.type == "cpu")  # on CUDA it needs settings made before start-up
        self.seed, self.rank, self.ranks, self.shards = seed, rank, ranks, shards
        self.device, self.progress, self.portion = device, progress, portion
        self.text = make_text(seed)
        self.plain = TinyGpt().to(device)
        self.model: nn.Module = self.plain
        self.communication = Communication(progress, device)
        if ddp:
            self.model = DistributedDataParallel(self.plain, device_ids=[device] if device.type == "cuda" else None)
            self.model.register_comm_hook(None, self.communication.reduce)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
        self.losses: list[float] = []
        self.step_s: list[float] = []
        self.comm_s: list[float] = []
        self.data_s: list[float] = []

    def step(self, number: int) -> None:
        """Forward, backward, update; the loss is the mean over this process's part of the global batch."""
        self.communication.seconds, self.communication.bytes, loss_sum, data_s = 0.0, 0, 0.0, 0.0
        settle(self.device)
        began = time.perf_counter()
        self.optimizer.zero_grad(set_to_none=True)
        for shard in range(self.shards):
            self.progress.at("data", f"step {number + 1}")
            asked = time.perf_counter()
            inputs, targets = self.batch(number, shard)
            data_s += time.perf_counter() - asked
            self.progress.at("forward")
            loss = self.model(inputs, targets) / self.shards
            self.progress.at("backward")
            loss.backward()
            loss_sum += float(loss.detach())
        self.progress.at("update")
        self.optimizer.step()
        settle(self.device)
        self.step_s.append(time.perf_counter() - began)
        self.comm_s.append(self.communication.seconds)
        self.data_s.append(data_s)
        self.losses.append(loss_sum)

    def batch(self, number: int, shard: int) -> tuple[torch.Tensor, torch.Tensor]:
        """This process's part of a step's global batch, on its device."""
        which, shards = (self.rank, self.ranks) if self.shards == 1 else (shard, self.shards)
        mine = range(which * self.portion, (which + 1) * self.portion)
        parts = [batch(self.text, self.seed, number, one, shards * self.portion) for one in mine]
        inputs, targets = (torch.cat(tensors).to(self.device) for tensors in zip(*parts, strict=True))
        return inputs, targets

    def run(self, steps: int) -> dict:
        """All steps; the times without the warm-up."""
        warmup = min(WARMUP, steps - 1)
        cpu_began = wall_began = 0.0
        for number in range(steps):
            if number == warmup:
                cpu_began, wall_began = time.process_time(), time.perf_counter()
            self.step(number)
        cpu_share = (time.process_time() - cpu_began) / max(time.perf_counter() - wall_began, 1e-9)
        gradients = sum(p.numel() * p.element_size() for p in self.plain.parameters())
        return {
            "losses": self.losses,
            "step_seconds": [round(s, 6) for s in self.step_s[warmup:]],
            "comm_seconds": [round(s, 6) for s in self.comm_s[warmup:]],
            "data_seconds": [round(s, 6) for s in self.data_s[warmup:]],
            "warmup_steps": warmup,
            "parameter_sha256": parameter_sha256(self.plain),
            "gradient_bytes": self.communication.bytes or gradients,
            "cpu_share": round(cpu_share, 3),
        }


def train_rank(me, command: dict) -> dict:
    """The worker's way in: one rank of a run that the launcher described."""
    from groups import IdleShare, device_of, world

    members, idle = command["members"], IdleShare()
    me.progress.title = command["title"]
    me.progress.at("set up")
    ddp, portion = command["mode"] in ("ddp", "strong"), command.get("portion", 1)
    meeting = world(me, members, command["group"], command["timeout_s"]) if ddp else contextlib.nullcontext(0)
    with meeting as rank:
        training = Training(
            seed=command["seed"], rank=rank, ranks=len(members), shards=command["shards"], ddp=ddp,
            device=device_of(me), progress=me.progress, portion=portion,
        )  # fmt: skip
        found = training.run(command["steps"])
        if ddp:
            me.progress.at("leave")
            dist.barrier()  # nobody closes its sockets while another still sends
    return {**found, "local_batch": LOCAL_BATCH * portion, "idle_share": idle.share(), "peak_mib": peak_mib()}


def peak_mib() -> int:
    """Most memory this process ever had, in MiB."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next((int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM:")), 0)


class Silent:
    """Progress of a training by hand goes nowhere."""

    def at(self, phase: str, step: str | None = None) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a tiny language model, alone or under torchrun.")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shards", type=int, default=1, help="stand for so many ranks (one process only)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    ranks, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if cuda else torch.device("cpu")
    if ranks > 1:
        dist.init_process_group("nccl" if cuda else "gloo")
    found = Training(
        seed=options.seed,
        rank=rank,
        ranks=ranks,
        shards=options.shards,
        ddp=ranks > 1,
        device=device,
        progress=Silent(),
    ).run(options.steps)
    steps_s = found["step_seconds"]
    print(json.dumps({"rank": rank, "loss": [found["losses"][0], found["losses"][-1]],
                      "step_ms": round(1e3 * sum(steps_s) / len(steps_s), 2),
                      "comm_ms": round(1e3 * sum(found["comm_seconds"]) / len(steps_s), 2),
                      "gradient_bytes": found["gradient_bytes"], "cpu_share": found["cpu_share"],
                      "sha256": found["parameter_sha256"][:16]}))  # fmt: skip
    if ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
