"""People in a real small cluster: log-in, jobs, limits, a dead directory, moves, secrets, and the way back."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from inventory.loading import secrets_path
from tests.end_to_end.deploys import PYINFRA, deploy
from tests.lab.handle import Lab, run
from tests.lab.trial import write_trial

TEAMS = """\
    teams=(Team(name="red", limits=Limits(cpus=3), member_limits=Limits(cpus=2)), Team(name="blue")),
    users=(
        User(name="alex", uid=10_001, teams=("red",), ssh_keys=({key!r},)),
        User(name="ada", uid=10_003, teams=("blue",), ssh_keys=({key!r},), administrator=True),
    ),
    identity=Ldap(homes="/shared/home"),
    storage="""


class People:
    """The lab, and a person's key."""

    def __init__(self, lab: Lab, key: Path) -> None:
        self.lab, self.key, self.text = lab, key, Path(lab.inventory).read_text(encoding="utf-8")

    def log_in(self, name: str, node: str, command: str = "id -u") -> str:
        """What a person's command prints on a node; an empty text if they do not get in."""
        address = self.lab.cluster.node(node).address
        options = ["-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"]
        argv = ["ssh", *options, "-i", str(self.key), f"{name}@{address}", command]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False, stdin=subprocess.DEVNULL)
        return done.stdout.strip()

    def on_head(self, command: str) -> str:
        return self.lab.ssh("head", command, timeout_s=120).stdout.strip()

    def rewrite(self, old: str, new: str) -> None:
        assert old in self.text
        self.text = self.text.replace(old, new)
        Path(self.lab.inventory).write_text(self.text, encoding="utf-8")


@pytest.fixture
def people(tmp_path: Path) -> Iterator[People]:
    """A head that computes and another node with two people, deployed; gone afterwards."""
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    lab = write_trial(tmp_path, 2)
    found = People(lab, key)
    public = key.with_suffix(".pub").read_text(encoding="utf-8").strip()
    found.rewrite("import Cluster, External,", "import Cluster, External, Ldap, Limits, Team, User,")
    found.rewrite("    storage=", TEAMS.format(key=public))
    lab.lab("up", lab.inventory, timeout_s=900)
    try:
        deploy(lab)
        lab.ssh("head", "scontrol update nodename=head,n1 state=resume")
        yield found
    finally:
        lab.lab("down")


@pytest.mark.full
def test_people_of_the_inventory_work_in_their_limits(people: People) -> None:
    """Log-in, jobs, limits, a dead directory, one person moved and one removed, and no secret where it must not be."""
    assert deploy(people.lab).changed <= 1, "only the quarantine that this test lifted by hand"
    people.on_head("scontrol update nodename=head,n1 state=resume")
    _jobs_and_limits(people)
    _dead_directory(people)
    _no_secret_outside(people)
    people.on_head("klaster-backup")
    people.rewrite('User(name="ada", uid=10_003, teams=("blue",)', 'User(name="max", uid=10_004, teams=("blue",)')
    changed = deploy(people.lab)
    assert "add max, change team blue, disable ada" in changed.output
    assert (people.log_in("max", "head"), people.log_in("ada", "head")) == ("10004", "")
    people.on_head("scancel -u alex; sleep 3; klaster-restore $(ls -t /var/backups/klaster/*.gz | head -1)")
    assert "disable ada" in deploy(people.lab).output, "the directory of before was restored"
    assert people.on_head("sacct -aXnP --starttime=2000-01-01 -u alex --format=JobID")


def _jobs_and_limits(people: People) -> None:
    assert people.log_in("alex", "head") == "10001"
    assert people.log_in("alex", "n1") == "", "nobody without a job"
    assert people.log_in("ada", "n1", "sudo -n id -u") == "0"
    assert people.on_head("cd /tmp; runuser -u alex -- srun -w n1 id -un </dev/null") == "alex"
    people.on_head("runuser -u alex -- sbatch -D /tmp -o /dev/null -w n1 --wrap 'sleep 60'")
    people.on_head("runuser -u alex -- sbatch -D /tmp -o /dev/null -n2 --wrap true; sleep 4")
    reasons = people.on_head("squeue -h -u alex -o %r").split()
    assert "QOSMaxCpuPerUserLimit" in reasons
    assert people.log_in("alex", "n1") == "10001", "with a job there"


def _dead_directory(people: People) -> None:
    people.on_head("systemctl stop slapd")
    assert people.log_in("alex", "head") == "10001"
    people.on_head("systemctl start slapd")


LOOK = """
find / -xdev -type f -perm -004 -size -20M -not -path '/usr/*' -print0 | xargs -0 grep -lFf /run/words 2>/dev/null
grep -rlFf /run/words /var/log /root /tmp
journalctl -q --no-pager | grep -Ff /run/words | grep -v words
for p in /proc/[0-9]*; do
  for part in cmdline environ; do tr '\\0' '\\n' < $p/$part 2>/dev/null | grep -qFf /run/words && echo $p/$part; done
done
rm /run/words
"""


def _no_secret_outside(people: People) -> None:
    """Each generated secret: in no argument, environment, journal, log or file that everybody may read."""
    words = secret_words(people.lab)
    for node in ("head", "n1"):
        people.lab.ssh(node, "umask 077; printf '%s\\n' " + " ".join(f"'{word}'" for word in words) + " > /run/words")
        assert people.lab.ssh(node, LOOK, timeout_s=300).stdout.strip() == "", node
    people.lab.ssh("n1", "rm -f /etc/munge/munge.key /etc/sssd/sssd.conf")  # so that secrets travel once more
    said = {
        "a deploy": deploy(people.lab, "deploys/site.py", "--diff", "-vv").output,
        "what pyinfra knows": run([PYINFRA, people.lab.inventory, "debug-inventory"]).stdout,
        "git": run(["git", "grep", "-hI", "", "--", "."]).stdout,
    }
    assert "munge" in said["a deploy"]
    assert {(where, word[:4]) for where, text in said.items() for word in words if word in text} == set()


def secret_words(lab: Lab) -> list[str]:
    """One line that gives away each secret of the file."""
    known = json.loads(secrets_path(lab.inventory).read_text(encoding="utf-8"))
    parts = [part for value in known.values() for part in value.split("\0") if "CERTIFICATE" not in part]
    words = [part.splitlines()[1] if "PRIVATE" in part else part for part in parts if not part.startswith("ssh-")]
    assert len(words) >= 4
    return words
