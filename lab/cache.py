"""The package cache: an nginx of our own between the nodes and the Debian mirror, so nothing is downloaded twice."""

from __future__ import annotations

import pwd
import shutil
import socket
import time
from pathlib import Path
from urllib.parse import urlsplit

from lab.apt import Mirrors
from lab.errors import LabError
from lab.plan import PORT, Plan
from lab.process import end, launch, recorded, with_argument

PACKAGES = Path("/var/cache/klaster/packages")
WORKER_ACCOUNT = "www-data"


def cache_url(plan: Plan) -> str:
    return f"http://{plan.control}:{PORT}"


def apt_lines(url: str, suite: str, mirrors: Mirrors) -> list[str]:
    """The nodes' apt sources, all through the cache."""
    lines = [f"deb {url}/debian {suite} main", f"deb {url}/debian {suite}-updates main"]
    if mirrors.security:
        lines.append(f"deb {url}/debian-security {suite}-security main")
    return lines


def render_config(plan: Plan, mirrors: Mirrors, folder: Path) -> str:
    """nginx's configuration: packages are kept for a year, indexes asked for again after a minute."""
    places = {"debian": mirrors.main} | ({"debian-security": mirrors.security} if mirrors.security else {})
    locations = "\n".join(_location(name, base) for name, base in places.items())
    return f"""\
user {WORKER_ACCOUNT};
worker_processes 1;
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log warn;
events {{ worker_connections 512; }}
http {{
  log_format cache '$upstream_cache_status $status $request_uri';
  access_log {folder}/access.log cache;
  client_body_temp_path {folder}/body;
  fastcgi_temp_path {folder}/fastcgi;
  scgi_temp_path {folder}/scgi;
  uwsgi_temp_path {folder}/uwsgi;
  proxy_temp_path {folder}/proxy;
  proxy_cache_path {PACKAGES} levels=1:2 keys_zone=packages:16m max_size=40g inactive=365d use_temp_path=off;
  proxy_cache packages;
  # Four nodes that ask for the same package at once make one download of it.
  proxy_cache_lock on;
  proxy_cache_lock_timeout 300s;
  proxy_cache_lock_age 300s;
  proxy_cache_use_stale error timeout updating http_500 http_502 http_503 http_504;
  proxy_cache_revalidate on;
  proxy_http_version 1.1;
  proxy_ssl_server_name on;
  proxy_read_timeout 120s;
  proxy_ignore_headers Cache-Control Expires Set-Cookie Vary X-Accel-Expires;
  sendfile on;
  server {{
    listen {plan.control}:{PORT};
{locations}
  }}
}}
"""


def _location(name: str, base: str) -> str:
    there = urlsplit(base)
    return f"""\
    location ~ ^/{name}/.*(\\.deb|/by-hash/[^/]*/[^/]*)$ {{
      rewrite ^/{name}/(.*)$ {there.path}/$1 break;
      proxy_pass {there.scheme}://{there.netloc};
      proxy_set_header Host {there.netloc};
      proxy_cache_key $request_uri;
      proxy_cache_valid 200 365d;
    }}
    location /{name}/ {{
      proxy_pass {base}/;
      proxy_set_header Host {there.netloc};
      proxy_cache_key $request_uri;
      proxy_cache_valid 200 1m;
      proxy_cache_valid 404 1m;
    }}"""


def start_cache(plan: Plan, mirrors: Mirrors, folder: Path) -> None:
    """Start our nginx unless it runs already; LabError with its last words if it doesn't listen within 10 s."""
    record = folder / "process.json"
    if recorded(record):
        return
    account = pwd.getpwnam(WORKER_ACCOUNT)
    for path in (folder, PACKAGES):
        path.mkdir(parents=True, exist_ok=True)
        shutil.chown(path, account.pw_uid, account.pw_gid)
    config = folder / "nginx.conf"
    config.write_text(render_config(plan, mirrors, folder), encoding="utf-8")
    end(with_argument(str(config)))  # one that an interrupted `up` had no time to record
    with (folder / "stdout.log").open("wb") as log:
        launch(["nginx", "-c", str(config)], record, log)
    deadline = time.monotonic() + 10
    while not _listens(plan.control):
        if recorded(record) is None or time.monotonic() > deadline:
            words = [p.read_text(errors="replace")[-400:] for p in folder.glob("*.log") if p.name != "access.log"]
            raise LabError(f"the package cache (nginx) does not start: {' '.join(words)}")
        time.sleep(0.02)


def _listens(address: str) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex((address, PORT)) == 0


def stop_cache(folder: Path) -> None:
    pids = set(with_argument(str(folder / "nginx.conf"))) | (
        {pid} if (pid := recorded(folder / "process.json")) else set()
    )
    workers = [worker for pid in pids for worker in _children(pid)]
    end([*pids, *workers])


def _children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
