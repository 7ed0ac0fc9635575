"""Start workers of nodes in service as ordinary Slurm jobs, and the rest (the head as a partner) over ssh."""

from __future__ import annotations

import contextlib
import shlex
from collections import defaultdict
from collections.abc import Mapping, Sequence

from inventory.model import DEPLOY_ACCOUNT, Cluster
from validation.launch_ranks import Pipe, Worker
from validation.launch_ssh import SshLauncher
from validation.remote import Remote, RemoteError

JOB_NAME = "klaster-certify"
TIME_LIMIT_MINUTES = 120
ALLOCATION_S = 60


class SlurmLauncher(SshLauncher):
    """One srun on the controller for all nodes with as many GPUs: its stdin goes to every rank, its output says whose
    it is. Slurm gives each node of a job the same number of tasks and GPUs, so unlike nodes need jobs of their own.
    """

    def __init__(self, cluster: Cluster, remotes: Mapping[str, Remote], run_id: str) -> None:
        super().__init__(cluster, remotes, run_id)
        self._controller = remotes[cluster.controller.name]
        self._in_slurm = {node.name for node in cluster.compute_nodes}

    def start(self, workers: Sequence[Worker]) -> list[tuple[Pipe, tuple[int, ...]]]:
        inside = [worker for worker in workers if worker.node in self._in_slurm]
        outside = [worker for worker in workers if worker.node not in self._in_slurm]
        pipes = super().start(outside)
        for alike in self.groups(inside):
            try:
                pipe = self._controller.stream(self._controller.sudo(self.command(alike)))
                pipes.append((pipe, tuple(worker.rank for worker in alike)))
            except RemoteError as error:
                for worker in alike:
                    worker.ended, worker.failed_start = True, str(error)
        return pipes

    def groups(self, workers: Sequence[Worker]) -> list[list[Worker]]:
        """The workers by how many GPUs their node has."""
        found: dict[int, list[Worker]] = defaultdict(list)
        for worker in workers:
            found[self._cluster.node(worker.node).gpu_count].append(worker)
        return list(found.values())

    def command(self, workers: Sequence[Worker]) -> str:
        """The srun command line as root on the controller, for nodes with the same number of GPUs."""
        nodes = sorted({worker.node for worker in workers})
        gpus = self._cluster.node(nodes[0]).gpu_count
        tasks = max(1, gpus)
        words = [
            "srun", f"--job-name={JOB_NAME}", f"--nodelist={','.join(nodes)}", f"--nodes={len(nodes)}",
            f"--ntasks-per-node={tasks}", "--exclusive", "--label", "--kill-on-bad-exit=0", "--wait=0",
            f"--immediate={ALLOCATION_S}", f"--time={TIME_LIMIT_MINUTES}", "--chdir=/", "--input=all",
            *([f"--partition={partition}"] if (partition := self._partition(nodes)) else []),
            *([f"--gres=gpu:{gpus}"] if gpus else []),
        ]  # fmt: skip
        worker = f"exec {self.python()} {self.program(nodes[0])} --slurm"
        line = shlex.join([*words, "sh", "-c", worker])
        return f"cd /; exec runuser -u {DEPLOY_ACCOUNT} -- {line}"

    def _partition(self, nodes: Sequence[str]) -> str:
        """A partition that holds all of them, the default first; empty text leaves the choice to Slurm."""
        partitions = sorted(self._cluster.slurm.partitions, key=lambda one: not one.default)
        return next((one.name for one in partitions if not one.nodes or set(nodes) <= set(one.nodes)), "")

    def shares_a_program(self, worker: Worker) -> bool:
        return worker.node in self._in_slurm

    def take_out_of_slurm(self, node: str) -> None:
        self._in_slurm.discard(node)

    def clean(self, workers: Sequence[Worker]) -> None:
        if any(worker.node in self._in_slurm for worker in workers):
            cancel = f"scancel --quiet --user={DEPLOY_ACCOUNT} --name={JOB_NAME} --signal=KILL --full; true"
            end = f"scancel --quiet --user={DEPLOY_ACCOUNT} --name={JOB_NAME}; true"
            with contextlib.suppress(RemoteError):  # srun ends with its connection, and the job with srun
                self._controller.run(self._controller.sudo(f"{cancel}; {end}"), timeout_s=10)
        super().clean(workers)
