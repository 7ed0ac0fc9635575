"""The command lines that start and end workers, without a node."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from inventory.model import Cluster, Gpu, Network, Node, Partition, Slurm, TrainingEnv
from validation.launch_ranks import Worker
from validation.launch_slurm import SlurmLauncher
from validation.launch_ssh import SshLauncher
from validation.remote import Remote


class FakeRemote:
    """A remote that only has a user."""

    def __init__(self, user: str) -> None:
        self.user = user


def cluster(*, gpus: tuple[int, ...] = (0, 0), training: TrainingEnv | None = None) -> Cluster:
    cards = [(Gpu(model="NVIDIA RTX A4000", count=count),) if count else () for count in gpus]
    return Cluster(
        name="c",
        networks=(Network(name="lan", cidr="10.1.0.0/24", speed_gbps=1),),
        nodes=(
            Node(name="head", address="10.1.0.10", roles=("controller",)),
            *(Node(name=f"n{i}", address=f"10.1.0.1{i}", gpus=card) for i, card in enumerate(cards, 1)),
        ),
        slurm=Slurm(partitions=(Partition(name="few", nodes=("n1",)), Partition(name="all", default=True))),
        training=training or TrainingEnv(),
    )


def remotes(user: str = "root") -> dict[str, Remote]:
    return {name: cast(Remote, FakeRemote(user)) for name in ("head", "n1", "n2")}


def workers(*nodes: str) -> list[Worker]:
    return [Worker(rank, node, "10.1.0.1", 0, Path("log")) for rank, node in enumerate(nodes)]


def test_srun_holds_its_nodes_alone_and_survives_one_task() -> None:
    """One task a node on exactly the nodes asked for, in a partition that holds them; one death does not end all."""
    line = SlurmLauncher(cluster(), remotes(), "run-1").command(workers("n2", "n1"))
    for word in ("runuser -u klaster", "--nodelist=n1,n2", "--nodes=2", "--ntasks-per-node=1", "--exclusive"):
        assert word in line
    for word in ("--kill-on-bad-exit=0", "--wait=0", "--partition=all", "--job-name=klaster-certify", "--time="):
        assert word in line
    assert "--gres" not in line


def test_gpus_are_asked_for_and_unlike_nodes_have_jobs_of_their_own() -> None:
    """A task a GPU, and none is left out where another node has none."""
    line = SlurmLauncher(cluster(gpus=(2, 2)), remotes(), "r").command(workers("n1", "n1", "n2", "n2"))
    assert "--gres=gpu:2" in line
    assert "--ntasks-per-node=2" in line
    for second in (0, 1):
        launcher = SlurmLauncher(cluster(gpus=(2, second)), remotes(), "r")
        pair, single = (launcher.command(alike) for alike in launcher.groups(workers("n1", "n2", "n1")))
        assert "--nodelist=n1 " in pair
        assert "--gres=gpu:2" in pair
        assert "--nodelist=n2 " in single
        assert ("--gres=gpu:1" in single) == (second == 1)


@pytest.mark.parametrize(
    ("source", "expected"),
    [("debian", "/usr/bin/python3"), ("venv", "/opt/torch/bin/python"), ("auto", "$([ -x /opt/torch/bin/python ]")],
)
def test_interpreter_follows_the_training_environment(source: str, expected: str) -> None:
    """The python that has torch: Debian's, the virtual environment's, or what is there."""
    training = TrainingEnv.model_validate({"source": source, "venv": "/opt/torch"})
    assert SshLauncher(cluster(training=training), remotes(), "r").python().startswith(expected)


def test_folder_is_private_to_the_run() -> None:
    """root's runs live in memory, others' in /tmp; a run id that could leave the folder is refused."""
    assert SshLauncher(cluster(), remotes(), "run-1").folder("n1") == "/run/klaster/run-1"
    assert SshLauncher(cluster(), remotes("ada"), "run-1").folder("n1") == "/tmp/klaster-run-1"  # noqa: S108
    with pytest.raises(ValueError, match="run id"):
        SshLauncher(cluster(), remotes(), "../etc")
