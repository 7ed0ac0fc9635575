"""What makes a node this node and no other: name, keys, where its packages come from."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

from lab.apt import Mirrors
from lab.cache import apt_lines, cache_url
from lab.plan import NodePlan, Plan


def furnish(plan: Plan, node: NodePlan, suite: str, root: Path, host_key: Path, mirrors: Mirrors) -> None:
    """Write the files below `root`, a folder that is laid over the image."""
    etc = root / "etc"
    for path in (etc / "ssh", etc / "apt", root / "root" / ".ssh"):
        path.mkdir(parents=True, exist_ok=True)
    (root / "root").chmod(0o700)
    (root / "root" / ".ssh").chmod(0o700)
    (etc / "hostname").write_text(f"{node.name}\n")
    # mmdebstrap leaves the machine's own in the image: a name server that no node can reach.
    (etc / "resolv.conf").write_text("# The lab has no name server.\n")
    (etc / "machine-id").write_text(f"{uuid.uuid4().hex}\n")
    (etc / "hosts").write_text(
        f"127.0.0.1\tlocalhost\n127.0.1.1\t{node.name}\n::1\tlocalhost\n"
    )  # as Debian's installer
    (etc / "apt" / "sources.list").write_text("\n".join(apt_lines(cache_url(plan), suite, mirrors)) + "\n")
    shutil.copy(Path(plan.state_dir) / "id_ed25519.pub", root / "root" / ".ssh" / "authorized_keys")
    for suffix, mode in (("", 0o600), (".pub", 0o644)):
        target = etc / "ssh" / f"ssh_host_ed25519_key{suffix}"
        shutil.copy(f"{host_key}{suffix}", target)
        target.chmod(mode)
