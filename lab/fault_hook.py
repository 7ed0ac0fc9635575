"""REHEARSAL ONLY: breaks a torch program on purpose. bin/lab lays this into a lab node, bin/lab heal takes it out.

Python imports it at start-up through a .pth file; it waits until the program imports torch. WHAT, AT and EVERY stand in
the line that the lab puts in place of the next one.
"""

WHAT, AT, EVERY = "", 0, 0

import importlib.abc  # noqa: E402 - after the line that the lab replaces
import importlib.util  # noqa: E402
import os  # noqa: E402
import signal  # noqa: E402
import sys  # noqa: E402
from collections.abc import Callable  # noqa: E402
from typing import Any  # noqa: E402


class _AfterTorch(importlib.abc.MetaPathFinder):
    """Finds torch once and breaks it as soon as it is imported."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        if spec and spec.loader:
            run = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                run(module)
                _break(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _break(torch: Any) -> None:
    if WHAT == "flip":
        _flip_bits(torch)
    elif WHAT == "skip":
        _skip_collective(torch)
    else:
        _at_step(torch, {"kill": _kill, "stop": _stop, "exit": _exit, "crash": _crash, "spin": _spin}[WHAT])


def _at_step(torch: Any, act: Callable[[], None]) -> None:
    """Do it after step AT of training with others."""
    steps = [0]

    def count(*_: object) -> None:
        if _together(torch):
            steps[0] += 1
            if steps[0] == AT:
                act()

    sys.modules["torch.optim.optimizer"].register_optimizer_step_post_hook(count)


def _together(torch: Any) -> bool:
    dist = torch.distributed
    return bool(dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1)


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _exit() -> None:
    os._exit(3)


def _crash() -> None:
    raise ValueError("rehearsal: this rank raises on purpose")


def _spin() -> None:
    while True:
        pass


def _skip_collective(torch: Any) -> None:
    """Leave one all-reduce of a training out, as a branch does that not all ranks take."""
    dist, real = torch.distributed, torch.distributed.all_reduce
    seen = {"steps": 0, "skipped": False}

    def count(*_: object) -> None:
        seen["steps"] += _together(torch)

    def all_reduce(*arguments: Any, **words: Any) -> Any:
        if seen["steps"] >= AT and not seen["skipped"]:
            seen["skipped"] = True
            return None
        return real(*arguments, **words)

    sys.modules["torch.optim.optimizer"].register_optimizer_step_post_hook(count)
    dist.all_reduce = all_reduce


def _flip_bits(torch: Any) -> None:
    """One bit of one element of every EVERY-th matrix product is wrong."""
    calls = [0]

    def wrong(real: Callable[..., Any]) -> Callable[..., Any]:
        def product(*arguments: Any, **words: Any) -> Any:
            out = real(*arguments, **words)
            calls[0] += 1
            if calls[0] % EVERY == 0 and out.dtype == torch.float32 and out.numel():
                flat = out.detach().view(-1)[:1].view(torch.int32)
                flat.bitwise_xor_(1 << 21)
            return out

        return product

    functional = torch.nn.functional
    functional.linear = wrong(functional.linear)
    for name in ("matmul", "mm"):
        setattr(torch, name, wrong(getattr(torch, name)))


if WHAT:
    sys.meta_path.insert(0, _AfterTorch())
