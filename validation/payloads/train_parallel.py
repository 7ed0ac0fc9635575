"""Train the tiny language model in every way that large models are trained; the losses must be those of one process.

    torchrun --nproc-per-node 2 --rdzv-backend c10d --rdzv-endpoint localhost:0 train_parallel.py     two processes
    torchrun --nnodes 2 --rdzv-backend c10d --rdzv-endpoint HEAD:29500 train_parallel.py              two machines

Debian's torch is built without libuv, which torchrun's own store wants: there, with a file on a shared folder,
    export USE_LIBUV=0 TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
    torchrun --nnodes 2 --rdzv-backend c10d --rdzv-conf store_type=file --rdzv-endpoint /shared/meet train_parallel.py

A recipe is a function of a Job that returns the loss of each step. The global batch of a step is cut into `shards`;
rank r of n trains on shards r, r+n, …, so that another number of ranks sees the same data and must get the same curve.
validate-cluster calls accept() in its workers, one recipe a command.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import os
import shutil
import tempfile
import time
import traceback
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from train_ddp import LEARNING_RATE, MOMENTUM, Block, Silent, TinyGpt, batch, loss_of, make_text

PIXELS, CLASSES, IMAGES = 16, 4, 8
MICRO_BATCHES = 2


@dataclass
class Job:
    """What a recipe gets: who it is among whom, what to train on, and where checkpoints go."""

    rank: int
    ranks: int
    shards: int
    steps: int
    seed: int
    device: torch.device
    progress: object
    folder: str = ""

    def __post_init__(self) -> None:
        self.text = make_text(self.seed)
        torch.manual_seed(self.seed)  # every rank begins with the same weights

    def batch(self, step: int, shard: int) -> tuple[torch.Tensor, torch.Tensor]:
        inputs, targets = batch(self.text, self.seed, step, shard, self.shards)
        return inputs.to(self.device), targets.to(self.device)

    def model(self) -> TinyGpt:
        return TinyGpt().to(self.device)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)

    def train(self, model, optimizer: torch.optim.Optimizer, steps: range, get=None) -> list[float]:
        """Steps of data parallel training; the loss is the mean over the whole global batch."""
        losses = []
        for step in steps:
            self.progress.at("forward", f"step {step + 1}")
            optimizer.zero_grad(set_to_none=True)
            inputs, targets, weight = self.own(step, get)
            loss = model(inputs, targets) * weight
            loss.backward()
            optimizer.step()
            losses.append(self.mean(loss.detach()))
        return losses

    def own(self, step: int, get=None) -> tuple[torch.Tensor, torch.Tensor, float]:
        """This rank's shards as one batch, and its weight in the mean over ranks, by the number of its shards.

        One batch, since all ranks must call the same collectives, and some may have a shard more than others.
        """
        mine = range(self.rank, self.shards, self.ranks)
        parts = [(get or self.batch)(step, shard) for shard in mine]
        inputs, targets = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
        return inputs, targets, len(mine) * self.ranks / self.shards

    def mean(self, loss: torch.Tensor) -> float:
        self.progress.at("all-reduce")
        if self.ranks > 1:
            dist.all_reduce(loss)
        return float(loss) / self.ranks

    def ddp(self, model: nn.Module) -> nn.Module:
        cuda = self.device.type == "cuda"
        return DistributedDataParallel(model, device_ids=[self.device] if cuda else None) if self.ranks > 1 else model


def alone(job: Job) -> Job:
    """The same job for one process that does all the work of all ranks."""
    return Job(0, 1, job.shards, job.steps, job.seed, job.device, job.progress)


# --- recipes of data parallel training --------------------------------------------------------------------------


def plain(job: Job) -> list[float]:
    model = job.ddp(job.model())
    return job.train(model, job.optimizer(model), range(job.steps))


def activation_checkpointing(job: Job) -> list[float]:
    """Outputs of blocks are not kept but computed again on the way back."""
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing

    model = job.model()
    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, Block))
    model = job.ddp(model)
    return job.train(model, job.optimizer(model), range(job.steps))


def mixed_precision(job: Job) -> list[float]:
    """bfloat16 where autocast thinks it safe: near the losses of float32, not the same."""
    model = job.ddp(job.model())

    def forward(inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        with torch.autocast(job.device.type, dtype=torch.bfloat16):  # one a step: it keeps the weights that it casts
            return model(inputs, targets)

    return job.train(forward, job.optimizer(model), range(job.steps))


def gradient_accumulation(job: Job) -> list[float]:
    """Two halves of each batch; gradients cross the network with the second one only."""
    model = job.ddp(job.model())
    optimizer, losses = job.optimizer(model), []
    for step in range(job.steps):
        job.progress.at("forward", f"step {step + 1}")
        optimizer.zero_grad(set_to_none=True)
        *whole, weight = job.own(step)
        total = torch.zeros((), device=job.device)
        for last, (inputs, targets) in enumerate(zip(*(tensor.chunk(2) for tensor in whole), strict=True)):
            with contextlib.nullcontext() if last or job.ranks == 1 else model.no_sync():
                loss = model(inputs, targets) * (weight / 2)
                loss.backward()
                total += loss.detach()
        optimizer.step()
        losses.append(job.mean(total))
    return losses


def sharded(job: Job):
    """FSDP: weights, gradients and optimizer state of each block lie in pieces on all ranks."""
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    return FullyShardedDataParallel(
        job.model(), auto_wrap_policy=ModuleWrapPolicy({Block}), device_id=job.device, use_orig_params=True
    )


def fsdp(job: Job) -> list[float]:
    model = sharded(job)
    return job.train(model, job.optimizer(model), range(job.steps))


# --- checkpoints: saved by some ranks, resumed by others ----------------------------------------------------------


def save(job: Job) -> list[float]:
    """Half the steps, then the state, each rank its piece."""
    from torch.distributed import checkpoint
    from torch.distributed.checkpoint.state_dict import get_state_dict

    model = sharded(job)
    optimizer = job.optimizer(model)
    losses = job.train(model, optimizer, range(job.steps // 2))
    weights, state = get_state_dict(model, optimizer)
    job.progress.at("write checkpoint")
    checkpoint.save({"model": weights, "optimizer": state}, checkpoint_id=job.folder)
    return losses


def resume(job: Job) -> list[float]:
    """The other half, by any number of ranks."""
    from torch.distributed import checkpoint
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    torch.manual_seed(job.seed + 1)  # other weights: what follows must come from the checkpoint
    model = sharded(job)
    optimizer = job.optimizer(model)
    weights, state = get_state_dict(model, optimizer)
    job.progress.at("read checkpoint")
    checkpoint.load({"model": weights, "optimizer": state}, checkpoint_id=job.folder)
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=state)
    return job.train(model, optimizer, range(job.steps // 2, job.steps))


# --- the model itself in pieces -----------------------------------------------------------------------------------


def tensor_parallel(job: Job) -> list[float]:
    """Each rank holds a part of the columns of a block's first matrix and of the rows of its second."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    model, mesh = job.model(), init_device_mesh(job.device.type, (job.ranks,))
    for block in model.blocks:
        parallelize_module(block.mlp, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    optimizer, losses = job.optimizer(model), []
    for step in range(job.steps):
        job.progress.at("forward", f"step {step + 1}")
        optimizer.zero_grad(set_to_none=True)
        total = 0.0
        for shard in range(job.shards):  # all ranks work on the same data
            loss = model(*job.batch(step, shard)) / job.shards
            loss.backward()
            total += float(loss.detach())
        optimizer.step()
        losses.append(total)
    return losses


class Front(nn.Module):
    """The first half of the pipeline: letters to the outputs of the first block."""

    def __init__(self, whole: TinyGpt) -> None:
        super().__init__()
        self.whole, self.block = whole, whole.blocks[0]

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.block(self.whole.embed(inputs))


class Back(nn.Module):
    """The second half: the other blocks, to the logits."""

    def __init__(self, whole: TinyGpt) -> None:
        super().__init__()
        self.blocks, self.norm, self.head = whole.blocks[1:], whole.norm, whole.head

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.blocks(x))).clone()  # torch 2.6 detaches it in place, which no view allows


def pipeline(job: Job) -> list[float]:
    """Two ranks, a half of the layers each; micro-batches follow one another through both."""
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    whole = job.model()
    half = Front(whole) if job.rank == 0 else Back(whole)
    optimizer, losses = job.optimizer(half), []
    micro = MICRO_BATCHES * job.shards
    stage = PipelineStage(half, job.rank, 2, job.device)
    # Newer ones divide the gradients by the number of micro-batches, torch 2.6 does not: so the loss is divided here.
    unscaled = {"scale_grads": False} if "scale_grads" in inspect.signature(ScheduleGPipe).parameters else {}
    schedule = ScheduleGPipe(
        stage, n_microbatches=micro, loss_fn=lambda logits, targets: loss_of(logits, targets) / micro, **unscaled
    )
    for step in range(job.steps):
        job.progress.at("forward", f"step {step + 1}")
        optimizer.zero_grad(set_to_none=True)
        shards = [job.batch(step, shard) for shard in range(job.shards)]
        inputs, targets = (torch.cat(parts) for parts in zip(*shards, strict=True))
        found: list[torch.Tensor] = []
        if job.rank == 0:
            schedule.step(inputs)
        else:
            schedule.step(target=targets, losses=found)
        optimizer.step()
        mean = torch.stack(found).sum().detach() if found else torch.zeros((), device=job.device)
        losses.append(job.mean(mean) * job.ranks)  # only the last rank has a loss
    return losses


# --- a vision model -----------------------------------------------------------------------------------------------


class TinyVision(nn.Module):
    """Two convolutions and a linear layer tell which quarter of a noisy picture is brighter."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.AvgPool2d(4),
            nn.Flatten(), nn.Linear(16 * (PIXELS // 8) ** 2, CLASSES),
        )  # fmt: skip

    def forward(self, pictures: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(self.layers(pictures), targets)


def vision(job: Job) -> list[float]:
    model = job.ddp(TinyVision().to(job.device))

    def pictures(step: int, shard: int) -> tuple[torch.Tensor, torch.Tensor]:
        dice = torch.Generator().manual_seed(job.seed * 1_000_003 + step * job.shards + shard)
        which = torch.randint(CLASSES, (IMAGES,), generator=dice)
        noise, half = torch.randn(IMAGES, 1, PIXELS, PIXELS, generator=dice), PIXELS // 2
        for picture, quarter in zip(noise, which.tolist(), strict=True):
            row, column = half * (quarter // 2), half * (quarter % 2)
            picture[:, row : row + half, column : column + half] += 1.0
        return noise.to(job.device), which.to(job.device)

    return job.train(model, job.optimizer(model), range(job.steps), pictures)


RECIPES = {
    "plain": plain, "activation-checkpointing": activation_checkpointing, "mixed-precision": mixed_precision,
    "gradient-accumulation": gradient_accumulation, "fsdp": fsdp, "save": save, "resume": resume,
    "tensor-parallel": tensor_parallel, "pipeline": pipeline, "vision": vision,
}  # fmt: skip


def reference(name: str, job: Job) -> list[float]:
    """What one process gets."""
    losses = vision(alone(job)) if name == "vision" else plain(alone(job))
    half = job.steps // 2
    return {"save": losses[:half], "resume": losses[half:]}.get(name, losses)


def accept(me, command: dict) -> dict:
    """The worker's way in: one recipe; an error is an answer, so that the others are still tried."""
    from groups import device_of, world

    name, members, began = command["recipe"], command["members"], time.perf_counter()
    me.progress.title = f"{name} on {len(members)} ranks"
    given = {key: command[key] for key in ("shards", "steps", "seed", "folder")}
    try:
        with world(me, members, command["group"], command["timeout_s"]) as rank:
            job = Job(rank=rank, ranks=len(members), device=device_of(me), progress=me.progress, **given)
            losses = RECIPES[name](job)
            me.progress.at("leave")
            dist.barrier()
        expected = reference(name, job) if rank == 0 else []
    except Exception as error:
        traceback.print_exc()
        lines = str(error).strip().splitlines() or [""]
        return {"error": f"{type(error).__name__}: {lines[0][:200]}"}
    seconds = round(time.perf_counter() - began, 3)
    return {"error": "", "losses": losses, "reference": expected, "seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description="Train in every way, and compare with one process.")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--folder", default="", help="for checkpoints; must be shared between machines")
    options = parser.parse_args()
    torch.set_num_threads(1)
    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    folder = options.folder or f"{tempfile.gettempdir()}/train-parallel-{os.getppid()}"
    for name, recipe in RECIPES.items():
        if name in ("pipeline", "tensor-parallel") and ranks != 2:
            continue
        job = Job(rank, ranks, ranks, options.steps, 1, device, Silent(), folder)
        losses = recipe(job)
        if rank == 0:
            right = reference(name, job)
            worst = max(abs(a - b) / abs(b) for a, b in zip(losses, right, strict=True))
            print(f"{name:26} {losses[0]:.4f} → {losses[-1]:.4f}, largest difference {worst:.1e}", flush=True)
        dist.barrier()
    if rank == 0 and not options.folder:
        shutil.rmtree(folder, ignore_errors=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
