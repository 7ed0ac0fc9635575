#!/usr/bin/python3
"""Search the logs of all nodes on the controller: by node, unit, job, rank, time and text; a front to journalctl."""

from __future__ import annotations

import argparse
import os
import shlex


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="klaster-logs", description=__doc__)
    found.add_argument("--node", help="only lines of this node")
    found.add_argument("--unit", help="only lines of this unit, e.g. slurmd")
    found.add_argument("--kernel", action="store_true", help="only lines of the kernels")
    found.add_argument(
        "--job", type=int, help="what ranks of this job printed (klaster-run), and what Slurm says of it"
    )
    found.add_argument("--rank", type=int, help="with --job: only this rank")
    found.add_argument("--since", default="-1d", help='e.g. "2026-11-30 14:00" or -2h; the default is a day ago')
    found.add_argument("--until", help="as --since")
    found.add_argument("--grep", help="only lines that match this expression")
    found.add_argument("-n", "--lines", type=int, help="only the last so many lines")
    found.add_argument("-f", "--follow", action="store_true", help="go on with new lines")
    found.add_argument("--show-command", action="store_true", help="print the journalctl command and end")
    return found


def command(arguments: argparse.Namespace) -> list[str]:
    """The journalctl command. Ranks print under an identifier of their own; Slurm names jobs in its lines."""
    words = ["journalctl", "--merge", "--output=short-iso", f"--since={arguments.since}"]
    words += [f"--until={arguments.until}"] if arguments.until else []
    words += [f"--lines={arguments.lines}"] if arguments.lines else []
    words += ["--follow"] if arguments.follow else ["--no-pager"]
    node = [f"_HOSTNAME={arguments.node}"] if arguments.node else []
    grep = arguments.grep
    if arguments.job is not None and arguments.rank is not None:
        node.append(f"SYSLOG_IDENTIFIER=job{arguments.job}.rank{arguments.rank}")
    elif arguments.unit or arguments.kernel:
        unit = arguments.unit if arguments.unit and "." in arguments.unit else f"{arguments.unit}.service"
        node.append("_TRANSPORT=kernel" if arguments.kernel else f"_SYSTEMD_UNIT={unit}")
    elif arguments.job is not None:
        # Slurm's daemons write JobId=7, StepId=7.0, [7.0]; the ranks are found by their identifiers.
        slurm = ["slurmd", "slurmctld", "slurmstepd"]
        identifiers = [f"SYSLOG_IDENTIFIER={name}" for name in [*slurm, *_ranks(arguments.job)]]
        node += identifiers
        grep = grep or rf"(JobId=|StepId=|\[|job ){arguments.job}\b|^(?!.*(JobId|StepId)=)"
    words += [f"--grep={grep}", "--case-sensitive=yes"] if grep else []
    return words + node


def _ranks(job: int) -> list[str]:
    """Identifiers that ranks of the job have used: journalctl has no pattern for them."""
    import subprocess

    listed = subprocess.run(
        ["journalctl", "--merge", "--field=SYSLOG_IDENTIFIER"], capture_output=True, text=True, check=False
    )
    return sorted(name for name in listed.stdout.split() if name.startswith(f"job{job}.rank"))


def main() -> None:
    arguments = parser().parse_args()
    if arguments.rank is not None and arguments.job is None:
        parser().error("--rank needs --job")
    words = command(arguments)
    if arguments.show_command:
        print(shlex.join(words))
        return
    os.execvp(words[0], words)  # noqa: S606 - journalctl takes over


if __name__ == "__main__":
    main()
