"""What could stop a first deploy or has broken a living node: one command that needs neither root nor Python."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyinfra.api.facts import FactBase

PEER_TIMEOUT_S = 3
_OWN_ACCOUNTS = ("klaster", "munge", "slurm")

_SECTIONS: Mapping[str, str] = {
    "os": '. /etc/os-release; echo "$ID $VERSION_ID"',
    "arch": "uname -m",
    "root": '[ "$(id -u)" = 0 ] && echo yes || { sudo -n true && echo yes; }',
    "host": "hostname; hostname -f",
    "machine": "cat /etc/machine-id; cut -d' ' -f2 /etc/ssh/ssh_host_ed25519_key.pub",
    "apt": "for p in /proc/[0-9]*/comm; do read -r c <$p; case $c in apt|apt-get|dpkg|aptitude|unattended-upgr) "
    'echo "$c";; esac; done | sort -u',
    "broken": "dpkg-query -W -f='${db:Status-Abbrev}|${Package}\\n' | grep '^.[^incp]' | cut -d'|' -f2",
    "sources": "d=$(mktemp -d) && chmod 755 $d && "
    "apt-get update --print-uris | sed -n \"s/^'\\([^']*InRelease\\)'.*/\\1/p\" "
    "| sort -u | while read -r u; do timeout 25 /usr/lib/apt/apt-helper -o Acquire::Retries=0 -o "
    'Acquire::http::Timeout=10 -o APT::Sandbox::User="$(id -un)" download-file "$u" $d/x >/dev/null 2>&1 '
    '&& echo "yes $u" || echo "no $u"; done; rm -rf "$d"',
    "proxy": "env | grep -i '^https*_proxy='; apt-config dump | grep -i 'Acquire::https*::Proxy'",
    "disk": "df -Pm / /var /tmp /boot | awk 'NR>1 {print $6, $4}' | sort -u",
    "synchronised": "timedatectl show -p NTPSynchronized --value",
    "addresses": "ip -o -4 address show",
    "route": "ip -o -4 route show default",
    "wireless": "ls -d /sys/class/net/*/wireless",
    "accounts": "getent passwd " + " ".join((*_OWN_ACCOUNTS, "901", "902", "64030")),
    "secure_boot": "od -An -t u1 -j 4 /sys/firmware/efi/efivars/SecureBoot-*",
    "swap": "sed 1d /proc/swaps",
    "memory": "grep MemTotal: /proc/meminfo",
    "virt": "systemd-detect-virt",
    "sleep": "systemctl is-enabled sleep.target; ls -d /sys/class/power_supply/BAT*",
    "firmware": "cat /sys/class/dmi/id/bios_date",
    "cards": 'for d in /sys/bus/pci/devices/*; do [ "$(cat $d/vendor)" = 0x10de ] && case $(cat $d/class) in 0x03*) '
    'echo "$(cat $d/device)";; esac; done',
    "listening": "ss -Hltn | awk '{print $4}'",
    "degraded": "systemctl --failed --plain --no-legend | awk '{print $1}'",
}


@dataclass
class Probe:
    """Answers of one node; what could not be asked is empty."""

    distribution: str = ""
    release: str = ""
    architecture: str = ""
    root: bool = False
    host_name: str = ""
    full_name: str = ""
    machine_id: str = ""
    host_key: str = ""
    apt: list[str] = field(default_factory=list)
    """Programs that hold apt's lock, or may."""
    broken: list[str] = field(default_factory=list)
    sources: dict[str, bool] = field(default_factory=dict)
    """Package source → its index could be fetched."""
    proxy: list[str] = field(default_factory=list)
    free_mib: dict[str, int] = field(default_factory=dict)
    synchronised: str = ""
    addresses: dict[str, str] = field(default_factory=dict)
    """IPv4 address → interface."""
    leased: set[str] = field(default_factory=set)
    """Addresses that a DHCP server gave for a time."""
    wireless: set[str] = field(default_factory=set)
    accounts: dict[str, int] = field(default_factory=dict)
    secure_boot: bool = False
    swap: list[str] = field(default_factory=list)
    memory_mib: int = 0
    virtualisation: str = ""
    sleep: str = ""
    battery: bool = False
    firmware_year: int | None = None
    cards: int = 0
    listening: set[int] = field(default_factory=set)
    failed_units: list[str] = field(default_factory=list)
    deaf: list[str] = field(default_factory=list)
    """Peers whose ssh port this node can't reach."""
    missing_mounts: list[str] = field(default_factory=list)


class ClockOffset(FactBase[float]):
    """Seconds by which the node's clock is ahead of this machine's; the way of the answer counts against it."""

    @staticmethod
    def default() -> float:
        return 0.0

    def command(self) -> str:
        return "date +%s.%N"

    def process(self, output: list[str]) -> float:
        return float(output[0]) - time.time()


class Doctor(FactBase[Probe | None]):
    """One probe of a node; `peers` are `name address port` to be reached from it, `mounts` folders others mount."""

    @staticmethod
    def default() -> None:
        return None

    def command(self, peers: Sequence[str] = (), mounts: Sequence[str] = ()) -> str:
        sections = dict(_SECTIONS)
        sections["peers"] = "; ".join(_reach(*peer.split()) for peer in peers) + ("; wait" if peers else "true")
        sections["mounts"] = (
            "; ".join(f"timeout 5 mountpoint -q {(path := shlex.quote(one))} || echo {path}" for one in mounts)
            or "true"
        )
        asked = "; ".join(f"echo '#{name}'; {{ {command}; }} 2>/dev/null" for name, command in sections.items())
        return f"export LC_ALL=C; {asked}; true"

    def process(self, output: list[str]) -> Probe:
        return parse_doctor(output)


def _reach(name: str, address: str, port: str) -> str:
    attempt = shlex.quote(f"exec 3<>/dev/tcp/{address}/{port}")
    return f"{{ timeout {PEER_TIMEOUT_S} bash -c {attempt} || echo {shlex.quote(name)}; }} & :"


def parse_doctor(lines: Sequence[str]) -> Probe:
    """Parse the sections that `Doctor.command` prints; a section that says nothing leaves its answer empty."""
    found: dict[str, list[str]] = {name: [] for name in (*_SECTIONS, "peers", "mounts")}
    current = ""
    for line in lines:
        if line.startswith("#") and line[1:] in found:
            current = line[1:]
        elif current and line.strip():
            found[current].append(line.strip())
    one = {name: (rows or [""])[0] for name, rows in found.items()}
    distribution, _, release = one["os"].partition(" ")
    year = re.search(r"(\d{4})$", one["firmware"])
    probe = Probe(
        distribution=distribution,
        release=release,
        architecture=one["arch"],
        root=one["root"] == "yes",
        host_name=one["host"],
        full_name=(found["host"] + ["", ""])[1],
        machine_id=one["machine"],
        host_key=(found["machine"] + ["", ""])[1],
        apt=found["apt"],
        broken=found["broken"],
        sources={url: answer == "yes" for answer, _, url in (row.partition(" ") for row in found["sources"])},
        proxy=found["proxy"],
        free_mib={path: int(free) for path, free in (row.split() for row in found["disk"])},
        synchronised=one["synchronised"],
        wireless={row.split("/")[4] for row in found["wireless"]},
        accounts=_accounts(found["accounts"]),
        secure_boot=one["secure_boot"] == "1",
        swap=[row.split()[0] for row in found["swap"]],
        memory_mib=int(one["memory"].split()[1]) // 1024 if one["memory"] else 0,
        virtualisation=one["virt"],
        sleep=one["sleep"],
        battery=any("BAT" in row for row in found["sleep"]),
        firmware_year=int(year[1]) if year else None,
        cards=len(found["cards"]),
        listening={int(port) for row in found["listening"] if (port := row.rpartition(":")[2]).isdigit()},
        failed_units=found["degraded"],
        deaf=found["peers"],
        missing_mounts=found["mounts"],
    )
    _read_addresses(probe, found["addresses"])
    return probe


def _accounts(lines: Sequence[str]) -> dict[str, int]:
    fields = [line.split(":") for line in lines]
    return {f[0]: int(f[2]) for f in fields if len(f) == 7 and f[2].isdigit()}


def _read_addresses(probe: Probe, lines: Sequence[str]) -> None:
    """Lines of `ip -o -4 address`: an address with a lease is called dynamic."""
    for line in lines:
        if found := re.match(r"\d+:\s+(\S+)\s+inet\s+([\d.]+)/\d+\s(.*)", line):
            probe.addresses[found[2]] = found[1]
            if " dynamic " in f" {found[3]} ":
                probe.leased.add(found[2])
