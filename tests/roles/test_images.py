"""Training images: what goes in, when it is built anew, and that the command is a program of the shell."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess

import pytest

from inventory.model import TrainingEnv
from roles.operations.images import LOCK, Recipe, build_command, recipes

LOCKED = "torch==2.9.0 --hash=sha256:00\n"
ENV = TrainingEnv(lock_file="torch.lock", cuda="12.8", index_url="https://packages.example/simple")
CPU, CUDA = recipes(ENV, LOCKED, "trixie", cards=True)


def test_cards_get_an_image_of_their_own() -> None:
    """Debian's torch for processors always; the lock file's for cards, where both are there."""
    assert (CPU.name, CUDA.name) == ("train-cpu", "train-cuda")
    assert "python3-torch" in CPU.packages
    assert "python3-torch" not in CUDA.packages, "it is a build without CUDA"
    assert recipes(ENV, LOCKED, "trixie", cards=False) == recipes(ENV, "", "trixie", cards=True) == [CPU]


@pytest.mark.parametrize(
    "change", [{"suite": "bookworm"}, {"lock_text": "x"}, {"index_url": "y"}, {"packages": ("a",)}]
)
def test_a_tag_changes_with_what_goes_in(change: dict[str, object]) -> None:
    """Another lock, index, package or release is another image; the same recipe is not built twice."""
    assert dataclasses.replace(CUDA, **change).tag != CUDA.tag  # type: ignore[arg-type]
    assert dataclasses.replace(CUDA).tag == CUDA.tag


@pytest.mark.parametrize("recipe", [CPU, CUDA], ids=lambda recipe: recipe.name)
def test_the_build_is_valid_shell_and_pushes_with_the_administrators_account(recipe: Recipe) -> None:
    """dash reads it; what is pushed has the recipe's tag."""
    command = build_command(recipe, "head:5000")
    subprocess.run([shutil.which("dash") or "sh", "-n"], input=command, text=True, check=True)
    assert command.endswith(
        f"push -q --authfile /etc/klaster/registry/push.json head:5000/{recipe.name}:{recipe.tag}; "
        f"buildah rmi -f head:5000/{recipe.name}:{recipe.tag} >/dev/null"
    )


def test_torch_for_cards_comes_by_its_hashes() -> None:
    """pip takes nothing that the lock does not name, from the inventory's index."""
    command = build_command(CUDA, "head:5000")
    assert "pip install -q --no-cache-dir --require-hashes --index-url https://packages.example/simple" in command
    assert LOCK in command
    assert "pip" not in build_command(CPU, "head:5000")
