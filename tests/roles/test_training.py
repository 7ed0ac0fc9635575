"""Where torch comes from on each kind of node, and what is refused."""

from __future__ import annotations

from inventory.hardware import SIMULATED
from inventory.model import TrainingEnv
from roles import training
from tests.roles.sample import cluster, found, gpu

CPU_LOCK = "torch==2.9.0 --hash=sha256:00\n"
CUDA_LOCK = "nvidia-cublas==13.0 --hash=sha256:00\ntorch==2.9.0 --hash=sha256:00\n"


def _plan(env: TrainingEnv, name: str = "n1", lock_text: str = "", **changes: object) -> training.Plan:
    return training.plan(env, cluster().node(name), found(**changes), lock_text)


def test_debian_13_without_gpu_takes_the_package() -> None:
    """The default on a CPU node of Debian 13 is Debian's torch."""
    assert _plan(TrainingEnv()).packages == training.DEBIAN


def test_elsewhere_a_virtual_environment() -> None:
    """A node with GPUs, or of another distribution, gets the environment of the lock file."""
    env = TrainingEnv(lock_file="torch.lock")
    assert _plan(env, "n2", CUDA_LOCK).venv == env.venv
    assert _plan(env, "n1", CPU_LOCK, distribution="ubuntu", release="24.04").venv == env.venv


def test_simulated_cards_compute_nothing() -> None:
    """A rehearsal's node whose cards are recordings takes what a node without cards takes."""
    recorded = gpu().model_copy(update={"uuid": f"{SIMULATED}1"})
    assert _plan(TrainingEnv(), "n2", gpus=(recorded,)).packages == training.DEBIAN


def test_no_cuda_build_on_a_cpu_node() -> None:
    """A lock file that brings CUDA is refused for a node without a GPU, with a sentence."""
    refusal = _plan(TrainingEnv(source="venv", lock_file="x"), "n1", CUDA_LOCK).refusal
    assert "n1 has no GPU" in refusal


def test_impossible_wishes_are_refused() -> None:
    """Debian's CPU torch on a GPU node, and an environment without a lock file, are one sentence each."""
    assert "must be venv" in _plan(TrainingEnv(source="debian"), "n2").refusal
    assert "lock_file" in _plan(TrainingEnv(), "n2").refusal
    assert "discover" in training.plan(TrainingEnv(), cluster().node("n1"), None, "").refusal


def test_environment_appears_complete_or_not_at_all() -> None:
    """The last command renames, and the lock's text goes through standard input."""
    commands = training.venv_commands(_plan(TrainingEnv(source="venv", lock_file="x"), "n2", CUDA_LOCK))
    assert commands[-1].endswith("mv -T /opt/klaster/torch.new /opt/klaster/torch")
    assert not any("sha256:00" in command for command in commands)
