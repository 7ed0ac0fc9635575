"""Do the same work on every rank, each by itself, and hash it bit by bit: who computes other bits than its peers?

    python3 fingerprint.py --episodes 4        two machines with like processors and software print the same lines

An episode trains the tiny language model for STEPS steps from weights and data of its own seed. Into its digest go
matrix products, the output of every block, the loss, and the local gradients: all before any reduction between ranks,
after which every rank would hold the same wrong value and none could say whose it is. Nothing outlives an episode, so
the wrong ones can be counted. Each episode is done PASSES times in a row: a rank that contradicts itself has a passing
fault, one that stands by another result than its peers a lasting one.

What makes the bits comparable is set here and told in the answer: one thread, deterministic kernels, no TF32, float32.
Like processors with other software (torch, numpy, BLAS, vector unit) may still give other bits: told as `software`.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import hashlib
import re
import time
from pathlib import Path

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from train_ddp import TinyGpt, batch, make_text

STEPS, PASSES = 5, 2
KINDS = ("products", "activations", "loss", "gradients")
"""The parts of a digest, in the order of the work: the first that differs says where an error came in."""
SIDE = 48
LEARNING_RATE = 0.1
SETTINGS = ("one thread", "deterministic kernels", "TF32 off", "float32", "plain attention")


def fingerprint(me, command: dict) -> dict:
    """The worker's way in: digests of `episodes` episodes, each a tuple of PASSES strings."""
    from groups import device_of

    device = device_of(me)
    text, began = make_text(command["seed"]), time.perf_counter()
    digests = []
    with deterministic():
        for number in range(command["episodes"]):
            me.progress.at("fingerprint", f"episode {number + 1}")
            digests.append([episode(text, command["seed"], number, device) for _ in range(PASSES)])
    return {
        "digests": digests,
        "steps": STEPS,
        "kinds": KINDS,
        "settings": SETTINGS,
        "software": software(device),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "",
        "seconds": round(time.perf_counter() - began, 3),
    }


@contextlib.contextmanager
def deterministic():
    """The worker has set CUBLAS_WORKSPACE_CONFIG before torch was imported, as these kernels ask for."""
    products, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn
    before = products.allow_tf32, convolutions.allow_tf32, torch.are_deterministic_algorithms_enabled()
    products.allow_tf32 = convolutions.allow_tf32 = False
    torch.use_deterministic_algorithms(True)
    try:
        flags = convolutions.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False)
        with flags, sdpa_kernel(SDPBackend.MATH):  # the fast kernels of attention add in any order
            yield
    finally:
        products.allow_tf32, convolutions.allow_tf32 = before[:2]
        torch.use_deterministic_algorithms(before[2])


def episode(text: torch.Tensor, seed: int, number: int, device: torch.device) -> str:
    """Digest of one episode: eight hexadecimal digits a kind, joined by dots."""
    own = seed * 1_000 + number
    torch.manual_seed(own)
    model = TinyGpt().to(device)
    hashes = {kind: hashlib.sha256() for kind in KINDS}
    for block in model.blocks:
        block.register_forward_hook(lambda _block, _given, out: put(hashes["activations"], out))
    for step in range(STEPS):
        for product in products(own + step, device):
            put(hashes["products"], product)
        inputs, targets = batch(text, own, step, 0, 1)
        loss = model(inputs.to(device), targets.to(device))
        put(hashes["loss"], loss)
        model.zero_grad(set_to_none=True)
        loss.backward()
        with torch.no_grad():
            for _, parameter in sorted(model.named_parameters()):
                put(hashes["gradients"], parameter.grad)
                parameter.sub_(LEARNING_RATE * parameter.grad)
    return ".".join(hashes[kind].hexdigest()[:8] for kind in KINDS)


def products(seed: int, device: torch.device) -> list[torch.Tensor]:
    """The same product by every way a model comes to one, and a convolution."""
    dice = torch.Generator().manual_seed(seed)
    a, b = (torch.rand(SIDE, SIDE, generator=dice).sub_(0.5).to(device) for _ in "ab")
    image, kernel = a.view(1, 1, SIDE, SIDE), b[:3, :3].reshape(1, 1, 3, 3)
    return [
        torch.matmul(a, b), a @ b, torch.mm(a, b), torch.bmm(a[None], b[None]), torch.addmm(a, a, b),
        functional.linear(a, b), torch.einsum("ij,jk->ik", a, b), functional.conv2d(image, kernel),
        torch.matmul(a.double(), b.double()), functional.softmax(a, -1), a.sum(),
    ]  # fmt: skip


def put(digest, tensor: torch.Tensor) -> None:
    """Every bit of the tensor into the hash."""
    flat = tensor.detach().cpu().contiguous()
    digest.update(ctypes.string_at(flat.data_ptr(), flat.numel() * flat.element_size()))


def software(device: torch.device) -> dict[str, str]:
    """What besides the processor's model decides the bits."""
    import numpy

    cuda = {"cuda": str(torch.version.cuda), "cudnn": str(torch.backends.cudnn.version())}
    return {
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "blas": loaded_blas(),
        "vector unit": torch.backends.cpu.get_cpu_capability(),
        **(cuda if device.type == "cuda" else {}),
    }


def loaded_blas() -> str:
    """File of the linear algebra library that this process really uses; distributions can exchange it."""
    maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    found = {Path(path).name for path in re.findall(r"(/\S*lib(?:blas|openblas|mkl_rt|blis|cblas)\S*)", maps)}
    return ", ".join(sorted(found)) or "built in"


def main() -> None:
    parser = argparse.ArgumentParser(description="Print digests of the same deterministic work.")
    parser.add_argument("--episodes", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    text = make_text(options.seed)
    print(software(device))
    with deterministic():
        for number in range(options.episodes):
            print(number, *(episode(text, options.seed, number, device) for _ in range(PASSES)))


if __name__ == "__main__":
    main()
