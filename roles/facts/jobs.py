"""Jobs that a change could disturb, asked on the node itself: Slurm's answer, and its step daemons if it is silent."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pyinfra.api.facts import FactBase


@dataclass(frozen=True)
class Jobs:
    """Jobs that run; `steps` are processes of Slurm that hold a job on this node, also where Slurm is silent."""

    numbers: tuple[str, ...] = ()
    steps: int = 0

    def __bool__(self) -> bool:
        return bool(self.numbers or self.steps)

    @property
    def words(self) -> str:
        """`jobs 12, 15 run` for a sentence."""
        if not self.numbers:
            return f"{self.steps} job steps run here"
        named = ", ".join(self.numbers[:5]) + (f" and {len(self.numbers) - 5} more" if len(self.numbers) > 5 else "")
        return f"job{'s' if len(self.numbers) > 1 else ''} {named} run{'' if len(self.numbers) > 1 else 's'}"


class RunningJobs(FactBase[Jobs]):
    """Jobs on this node, or with `everywhere` in the whole cluster; none where Slurm is not installed yet."""

    @staticmethod
    def default() -> Jobs:
        return Jobs()

    def command(self, everywhere: bool = False) -> str:
        where = "" if everywhere else '-w "$(hostname -s)" '
        return (
            f"timeout 20 squeue -h {where}-t running,completing,suspended,configuring,stopped -o 'J %i' 2>/dev/null; "
            'for p in /proc/[0-9]*/comm; do read -r c <$p && [ "$c" = slurmstepd ] && echo S; done 2>/dev/null; true'
        )

    def process(self, output: list[str]) -> Jobs:
        return parse_jobs(output)


def parse_jobs(lines: Sequence[str]) -> Jobs:
    """`J 12` is a job, `S` a step daemon; an array's tasks count each."""
    numbers = [found[1] for line in lines if (found := re.fullmatch(r"J (\S+)", line.strip()))]
    return Jobs(tuple(dict.fromkeys(numbers)), sum(line.strip() == "S" for line in lines))
