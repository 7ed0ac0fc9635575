"""Answer everything the node stage asks of one node, as one JSON document on stdout (standard library only).

Launch: python3 - '{"peers": {...}, ...}' < probe.py        (the questions are one JSON argument; see `main`)

Every question runs in a child process of its own with its own deadline, all side by side: a dead name server, a
stale mount or a hanging nvidia-smi costs its own answer only. An answer is {"ok": …} or {"error": "…"}.
"""

import grp
import json
import os
import platform
import pwd
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable

SYSCTLS = ("fs.file-max", "kernel.pid_max", "net.core.rmem_max", "net.core.wmem_max", "vm.overcommit_memory")


# --- asking with a deadline --------------------------------------------------------------------------------------


class Question:
    """A function that runs in a forked child, in its own session, until its answer or its deadline."""

    def __init__(self, function: Callable[[], object], deadline_s: float) -> None:
        self.deadline = time.monotonic() + deadline_s
        self.deadline_s = deadline_s
        self.pipe, end = os.pipe()
        self.received = b""
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            os.close(self.pipe)
            # Without our stdout: a child that can't be killed (D state) must not keep the connection open.
            null = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(null, descriptor)
            try:
                answer = {"ok": function()}
            except FileNotFoundError as error:
                answer = {"error": f"not there: {error.filename}"}
            except BaseException as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            with os.fdopen(end, "wb") as out:
                out.write(json.dumps(answer).encode())
            os._exit(0)
        os.close(end)

    def answer(self) -> dict:
        """The answer so far: the child's, or that its time is over."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, os.WNOHANG)
        except (ProcessLookupError, ChildProcessError):
            pass
        try:
            return json.loads(self.received)
        except ValueError:
            return {"error": f"no answer in {self.deadline_s:g} s"}


def ask_all(
    questions: dict[str, Callable[[], object]], deadline_s: float = 4.0, longer: dict[str, float] | None = None
) -> dict:
    """Ask all at once; {name: answer}, complete after the longest deadline; `longer`: {name: its own deadline}."""
    own = longer or {}
    asked = {name: Question(function, own.get(name, deadline_s)) for name, function in questions.items()}
    open_pipes = {question.pipe: question for question in asked.values()}
    while open_pipes:
        left = min(question.deadline for question in open_pipes.values()) - time.monotonic()
        ready, _, _ = select.select(list(open_pipes), [], [], max(0.0, left))
        for pipe in ready:
            data = os.read(pipe, 1 << 16)
            open_pipes[pipe].received += data
            if not data:
                del open_pipes[pipe]
        now = time.monotonic()
        open_pipes = {pipe: question for pipe, question in open_pipes.items() if question.deadline > now}
    return {name: question.answer() for name, question in asked.items()}


def command(*words: str, stdin: str = "") -> dict:
    """Status and output of a program; FileNotFoundError if it is not there."""
    found = subprocess.run(words, input=stdin, capture_output=True, text=True, env=environment(), check=False)
    return {"status": found.returncode, "stdout": found.stdout, "stderr": found.stderr[-2000:]}


def environment() -> dict:
    return {**os.environ, "LC_ALL": "C", "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}


def text(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


# --- the questions -----------------------------------------------------------------------------------------------


def system() -> dict:
    os_release = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', text("/etc/os-release"), re.M))
    return {
        "hostname": socket.gethostname(),
        "os": os_release.get("PRETTY_NAME", ""),
        "kernel": platform.release(),
        "boot_id": text("/proc/sys/kernel/random/boot_id").strip(),
        "uptime_s": float(text("/proc/uptime").split()[0]),
        "load": os.getloadavg(),
        "cpus": os.cpu_count(),
        "memory": {k: int(v) for k, v in re.findall(r"^(\w+):\s+(\d+) kB", text("/proc/meminfo"), re.M)},
        "sysctl": {name: sysctl(name) for name in SYSCTLS},
    }


def sysctl(name: str) -> str:
    try:
        return text("/proc/sys/" + name.replace(".", "/")).strip()
    except OSError as error:
        return f"not there: {error.strerror}"


def names(wanted: list) -> dict:
    """Addresses as this node resolves them; the node's own names too."""
    found = {}
    for name in wanted:
        try:
            rows = socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)
            found[name] = sorted({row[4][0] for row in rows})
        except OSError as error:
            found[name] = [f"error: {error}"]
    return found


def resolver() -> dict:
    """Ask every name server of resolv.conf one question itself: milliseconds to any answer, or what went wrong."""
    config = text("/etc/resolv.conf")
    servers = re.findall(r"^\s*nameserver\s+(\S+)", config, re.M)
    query = b"\x4b\x4c\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x01"
    answers = {}
    for server in servers[:3]:
        family = socket.AF_INET6 if ":" in server else socket.AF_INET
        began = time.monotonic()
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as link:
                link.settimeout(1.0)
                link.connect((server.split("%")[0], 53))
                link.send(query)
                link.recv(512)
                answers[server] = round((time.monotonic() - began) * 1000, 1)
        except OSError as error:
            answers[server] = f"error: {error}"
    return {"config": config, "servers": answers}


def sources(peers: dict) -> dict:
    """The address this node would send from to reach each peer: tells which interface the traffic takes."""
    found = {}
    for name, address in peers.items():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
            try:
                link.connect((address, 9))
                found[name] = link.getsockname()[0]
            except OSError as error:
                found[name] = f"error: {error}"
    return found


def interfaces() -> dict:
    found = {}
    for name in sorted(os.listdir("/sys/class/net")):
        base = f"/sys/class/net/{name}/"
        found[name] = {"physical": os.path.exists(base + "device"), "bridge": os.path.exists(base + "bridge")}
        for field in ("mtu", "speed", "operstate", "carrier_changes", "statistics/rx_errors", "statistics/tx_errors"):
            try:
                found[name][field] = text(base + field).strip()
            except OSError:  # speed of a link that is down or virtual
                found[name][field] = ""
    return found


def filesystem(path: str) -> dict:
    stat = os.statvfs(path)
    return {
        "mode": os.stat(path).st_mode & 0o7777,
        "total_bytes": stat.f_blocks * stat.f_frsize,
        "free_bytes": stat.f_bavail * stat.f_frsize,
        "files": stat.f_files,
        "files_free": stat.f_favail,
        "read_only": bool(stat.f_flag & os.ST_RDONLY),
    }


def limits() -> dict:
    """Limits of this session, and slurmd's own, which a job inherits; both as /proc/PID/limits has them."""
    pid = command("systemctl", "show", "-p", "MainPID", "--value", "slurmd.service")["stdout"].strip()
    slurmd = text(f"/proc/{pid}/limits") if pid.isdigit() and pid != "0" else ""
    return {"session": text("/proc/self/limits"), "slurmd": slurmd}


def versions(venv: str) -> dict:
    """Versions from package metadata: importing torch would cost seconds and some 300 MiB."""
    from importlib import metadata  # not part of the smallest Pythons

    if not os.path.exists(f"{venv}/bin/python"):
        venv = ""  # the distribution's packages then
    path = [f"{venv}/lib/{name}/site-packages" for name in os.listdir(f"{venv}/lib")] if venv else sys.path
    wanted = ("torch", "numpy")
    found = {}
    for dist in metadata.distributions(path=path):
        name = (dist.metadata["Name"] or "").lower()  # a package that is being installed has none yet
        if name in wanted:
            found.setdefault(name, dist.version)
    python = command(f"{venv}/bin/python", "-V")["stdout"].split()[-1] if venv else platform.python_version()
    return {"python": python, "torch": found.get("torch", ""), "numpy": found.get("numpy", "")}


def disks() -> dict:
    found = {}
    for name in sorted(os.listdir("/sys/block")):
        if not re.match(r"(loop|ram|zram|sr|fd|dm-|nbd|md)", name):
            found[name] = int(text(f"/sys/block/{name}/size")) * 512 // 2**30
    return found


def registry(host: str, port: int) -> dict:
    """Status of the registry's first page without an account and with the node's own (0: it has none)."""
    from http import client
    from ssl import SSLCertVerificationError

    found = {"untrusted": "", "unreachable": "", "stranger": 0, "node": 0}
    try:
        accounts = json.loads(text("/etc/klaster/registry/node.json"))["auths"]
    except (OSError, ValueError):
        accounts = {}
    known = accounts.get(f"{host}:{port}", {}).get("auth")
    for who, headers in (("stranger", {}), ("node", {"Authorization": f"Basic {known}"})):
        if who == "node" and not known:
            continue
        link = client.HTTPSConnection(host, port, timeout=3)
        try:
            link.request("GET", "/v2/", headers=headers)
            found[who] = link.getresponse().status
        except SSLCertVerificationError as error:
            return {**found, "untrusted": error.verify_message}
        except OSError as error:
            return {**found, "unreachable": f"{host}:{port}: {error}"}
        finally:
            link.close()
    return found


def accounts(wanted: list) -> dict:
    """uid and gid of the accounts that must be the same everywhere; None where there is no such account."""
    found = {}
    for name in wanted:
        try:
            entry = pwd.getpwnam(name)
            found[name] = [entry.pw_uid, entry.pw_gid, grp.getgrgid(entry.pw_gid).gr_name]
        except KeyError:
            found[name] = None
    return found


def people(wanted: list) -> dict:
    """uid, gid and names of the groups of people, as a log-in here would get them; None for who is unknown."""
    found = {}
    for name in wanted:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            found[name] = None
            continue
        groups = []
        for gid in os.getgrouplist(name, entry.pw_gid):
            try:
                groups.append(grp.getgrgid(gid).gr_name)
            except KeyError:
                groups.append(str(gid))
        found[name] = {"uid": entry.pw_uid, "gid": entry.pw_gid, "groups": groups}
    return found


def over_limit(jobs: list) -> dict:
    """Submit a job that a limit must hold back, see what Slurm says of it, and take it back; {team: answer}."""
    found = {}
    for job in jobs:
        words = ["sbatch", "--parsable", "-A", job["team"], "-n", str(job["cpus"]), "-D", "/", "-o", "/dev/null"]
        # Should this program be killed, the job is gone two minutes later.
        words += ["-t", "1", "--deadline=now+2minutes", "-J", "klaster-limit", "--wrap", "true"]
        done = command("runuser", "-u", job["user"], "--", *words)
        if done["status"] != 0:
            lines = (done["stderr"] or done["stdout"]).strip().splitlines()
            found[job["team"]] = {"error": lines[-1] if lines else "sbatch said nothing"}
            continue
        number = done["stdout"].strip().split(";")[0]
        try:
            for _ in range(5):
                time.sleep(0.2)
                state, _, reason = command("squeue", "-h", "-j", number, "-o", "%T|%r")["stdout"].strip().partition("|")
                found[job["team"]] = {"state": state or "gone", "reason": reason}
                if reason.startswith(("QOS", "Assoc")):
                    break
        finally:
            command("scancel", number)
    return found


def people_questions(asked: dict) -> dict[str, Callable[[], object]]:
    """A cluster without people is asked nothing about them."""
    found: dict[str, Callable[[], object]] = {}
    if asked.get("people"):
        found["people"] = lambda: people(asked["people"])
    if asked.get("slurm_accounts"):
        show = ("sacctmgr", "-nP", "show", "associations", "format=Account,User,MaxSubmitJobs")
        found["slurm_accounts"] = lambda: command(*show)
    if asked.get("over_limit"):
        found["over_limit"] = lambda: over_limit(asked["over_limit"])
    return found


def munge() -> dict:
    """A credential for the other nodes to decode, and this node's own round trip."""
    credential = command("munge", "-n")
    credential["decoded"] = command("unmunge", stdin=credential["stdout"]) if credential["status"] == 0 else None
    return credential


def infiniband() -> list:
    return sorted(os.listdir("/sys/class/infiniband")) if os.path.isdir("/sys/class/infiniband") else []


def main() -> None:
    """Questions: {"names": […], "peers": {name: address}, "paths": […], "services": […], "accounts": […], "venv"}."""
    asked = json.loads(sys.argv[1])
    began = time.monotonic()
    questions = {
        "system": system,
        "names": lambda: names(asked["names"]),
        "resolver": resolver,
        "sources": lambda: sources(asked["peers"]),
        "interfaces": interfaces,
        "addresses": lambda: command("ip", "-j", "-4", "address", "show"),
        "routes": lambda: command("ip", "-j", "-4", "route", "show", "default"),
        "services": lambda: command(
            "systemctl", "show", "-p", "Id,LoadState,ActiveState,SubState,UnitFileState,NRestarts", *asked["services"]
        ),
        "failed_units": lambda: command("systemctl", "list-units", "--failed", "--plain", "--no-legend"),
        "time": lambda: command("chronyc", "-n", "-c", "tracking"),
        "mounts": lambda: text("/proc/self/mounts"),
        "limits": limits,
        "versions": lambda: versions(asked["venv"]),
        "slurm_version": lambda: command("scontrol", "-V"),
        "slurm_ping": lambda: command("scontrol", "ping"),
        "munge": munge,
        "packages": lambda: command("dpkg", "--audit"),
        "disks": disks,
        "cgroup": lambda: text("/sys/fs/cgroup/cgroup.controllers").split(),
        "infiniband": infiniband,
        "accounts": lambda: accounts(asked["accounts"]),
    }
    questions.update(people_questions(asked))
    if asked.get("exports"):  # on the server of shared folders probe_storage.py stands before this file, too
        questions.update(globals()["storage_questions"](asked))
    for path in asked["paths"]:
        questions[f"filesystem:{path}"] = lambda path=path: filesystem(path)
    if asked.get("registry"):
        questions["registry"] = lambda: registry(*asked["registry"])
    # probe_disk.py and probe_network.py stand before this file, on a node with GPUs probe_gpu.py too: one program.
    if "disk_questions" in globals():
        questions.update(globals()["disk_questions"](asked.get("disks_but", [])))
    if "networks" in asked:
        questions.update(globals()["network_questions"](asked["networks"]))
    gpus = globals()["gpu_questions"]() if asked.get("gpus") else {}
    if asked.get("only"):
        questions, gpus = ({n: f for n, f in some.items() if n in asked["only"]} for some in (questions, gpus))
    longer = dict.fromkeys(gpus, 15.0)  # each card takes seconds to wake
    answers = ask_all({**questions, **gpus}, asked.get("deadline_s", 4.0), longer)
    answers["probe"] = {"ok": {"format": 1, "seconds": round(time.monotonic() - began, 2)}}
    json.dump(answers, sys.stdout, sort_keys=True)
    sys.stdout.flush()
    # A child in D state can't be reaped; leave without waiting for it.
    os._exit(0)


if __name__ == "__main__":
    main()
