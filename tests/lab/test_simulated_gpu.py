"""Recorded NVIDIA hardware for lab nodes: what is laid in, and that it calls itself a simulation."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from inventory.hardware import SIMULATED, HardwareLock
from lab import simulated_gpu
from lab.errors import LabError
from roles.facts.hardware import _gpu
from tests import nvidia
from tests.roles.sample import found
from validation.checks.gpu_smi import parse_smi

FOLDER = nvidia.FOLDER / "nodes"


def test_every_card_says_that_it_is_simulated() -> None:
    """UUIDs in every file begin with the word, and a lock with such a card is a simulation's."""
    files = simulated_gpu.simulation("eight", FOLDER)
    log = parse_smi(files[f"{simulated_gpu.FOLDER}/smi.xml"])
    assert all(one.uuid.startswith(SIMULATED) for one in log.gpus)
    assert SIMULATED in files[f"{simulated_gpu.FOLDER}/load.json"]
    cards = tuple(_gpu(row) for row in files[f"{simulated_gpu.FOLDER}/query.csv"].splitlines())
    assert HardwareLock(nodes={"n1": found(gpus=cards)}).simulated
    assert not HardwareLock(nodes={"n1": found()}).simulated


def test_discovery_and_description_agree() -> None:
    """The short and the long answer of the simulated nvidia-smi are about the same cards."""
    files = simulated_gpu.simulation("seven-of-eight", FOLDER)
    short = [_gpu(row).uuid for row in files[f"{simulated_gpu.FOLDER}/query.csv"].splitlines()]
    assert short == [one.uuid for one in parse_smi(files[f"{simulated_gpu.FOLDER}/smi.xml"]).gpus]
    assert len(short) == 7


def test_an_unknown_recording_names_those_there_are() -> None:
    """A misspelt name is one sentence with the valid ones."""
    with pytest.raises(LabError, match="seven-of-eight"):
        simulated_gpu.simulation("nine", FOLDER)


@pytest.mark.parametrize(
    ("name", "arguments", "status", "words"),
    [
        ("eight", ["-q", "-x"], 0, "<nvidia_smi_log>"),
        ("eight", ["--query-gpu=index,name,uuid,memory.total,pci.bus_id", "--format=csv"], 0, SIMULATED),
        ("eight", ["-pl", "100"], 2, "SIMULATED nvidia-smi has no recording"),
        ("driver-mismatch", ["-q", "-x"], 18, "version mismatch"),
    ],
)
def test_the_program_repeats_the_recording(
    tmp_path: Path, name: str, arguments: list[str], status: int, words: str
) -> None:
    """It answers what was recorded, fails as recorded, and refuses everything else."""
    for path, text in simulated_gpu.simulation(name, FOLDER).items():
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.replace("cd /etc", f"cd {tmp_path}/etc"), encoding="utf-8")
    program = tmp_path / simulated_gpu.PROGRAM
    program.chmod(0o755)
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False, env=os.environ)
    assert done.returncode == status
    assert words in done.stdout + done.stderr


def test_slurm_finds_a_device_a_card() -> None:
    """Beside the recording lie as many devices as a node can have cards: Slurm counts nothing else."""
    with tarfile.open(fileobj=io.BytesIO(simulated_gpu._tar({}))) as archive:
        found = {member.name: member.linkname for member in archive.getmembers()}
    assert found == {f"{simulated_gpu.FOLDER}/dev/nvidia{index}": "/dev/null" for index in range(16)}
