"""The registry in a lab: push, pull as an ordinary person, strangers, lost trust, a push that was cut off."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.deploys import deploy
from tests.lab.handle import ROOT, Lab, run
from tests.lab.trial import write_trial

DEPLOY = "tests/end_to_end/registry_only.py"
PARTS = """\
    containers=Containers(),
    registry=Registry(),
    teams=(Team(name="red", gid=70_500),),
    users=(User(name="alex", uid=10_001, teams=("red",)),),
"""
IMAGE = """\
set -e; cd $(mktemp -d); mkdir -p root/bin root/tmp; cp /usr/bin/dash root/bin/sh; cp /usr/bin/id root/bin/
for lib in $(ldd /usr/bin/dash /usr/bin/id | grep -o '/lib[^ ]*' | sort -u); do cp --parents $lib root/; done
c=$(buildah from scratch); buildah add -q $c root / >/dev/null
buildah config --cmd '["/bin/sh", "-c", "echo hello from $(id -u)"]' $c; buildah commit -q --rm $c head:5000/small:1
buildah push -q --authfile /etc/klaster/registry/push.json head:5000/small:1
"""
CUT_OFF = """\
cd $(mktemp -d); head -c 2147483648 /dev/urandom > blob; export REGISTRY_AUTH_FILE=/etc/klaster/registry/push.json
c=$(buildah from scratch); buildah add -q $c blob /blob; buildah commit -q --rm $c head:5000/big:1; rm blob
size() { du -sm /var/lib/klaster-registry | cut -f1; }
before=$(size); buildah push -q -D --retry 0 head:5000/big:1 & push=$!
n=0; while [ $(($(size) - before)) -lt 300 ] && [ $n -lt 600 ]; do sleep 0.2; n=$((n+1)); done
systemctl kill -s KILL docker-registry; wait $push && echo NOT CUT OFF; sleep 4
buildah push -q -D head:5000/big:1 && skopeo copy -q docker://head:5000/big:1 dir:copy
for file in copy/*; do name=${file##*/}; [ ${#name} = 64 ] || continue
  [ "$(sha256sum < $file | cut -c1-64)" = $name ] && echo RIGHT || echo WRONG; done
"""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Lab]:
    """A head with the registry and n1, deployed; alex is a local account on both."""
    lab = write_trial(tmp_path, 2)
    file = Path(lab.inventory)
    text = file.read_text(encoding="utf-8").replace(
        "import Cluster,", "import Cluster, Containers, Registry, Team, User,"
    )
    file.write_text(text.replace("    ssh=Ssh(", f"{PARTS}    ssh=Ssh("), encoding="utf-8")
    lab.lab("up", lab.inventory, timeout_s=900)
    try:
        for node in ("head", "n1"):
            lab.ssh(node, "groupadd -g 70500 red && useradd -u 10001 -g red -m -s /bin/bash alex")
        deploy(lab, DEPLOY)
        yield lab
    finally:
        lab.lab("down")


@pytest.mark.full
def test_the_registry(site: Lab) -> None:
    """Administrators push, people of a team pull and run without root, strangers get nothing, cut-off pushes go on."""
    assert deploy(site, DEPLOY).changed == 0
    site.ssh("head", IMAGE, timeout_s=120)
    ran = site.ssh("n1", "su - alex -c 'cd /tmp && podman run --rm head:5000/small:1'", timeout_s=120)
    assert "hello from 0" in ran.stdout
    owner = site.ssh("n1", "stat -c %U /var/lib/klaster-containers/10001").stdout.strip()
    assert owner == "alex"
    status = "curl -s -o /dev/null -w '%{http_code}' "
    assert site.ssh("n1", f"{status} https://head:5000/v2/").stdout == "401"
    assert site.ssh("n1", f"{status} -u node:wrong https://head:5000/v2/").stdout == "401"
    pulled = site.ssh("n1", "su - alex -c 'REGISTRY_AUTH_FILE=/none podman pull head:5000/small:1'", check=False)
    assert pulled.returncode != 0
    pushed = "buildah push --authfile /etc/klaster/registry/node.json head:5000/small:1 docker://head:5000/other:1"
    assert site.ssh("head", pushed, check=False).returncode != 0

    cut = site.ssh("head", CUT_OFF, timeout_s=600).stdout
    assert "NOT CUT OFF" not in cut
    assert "RIGHT" in cut
    assert "WRONG" not in cut

    site.ssh("n1", "rm /usr/local/share/ca-certificates/klaster.crt && update-ca-certificates --fresh")
    assert site.ssh("n1", "curl -sS https://head:5000/v2/", check=False).returncode == 60
    validate = [str(ROOT / ".venv/bin/validate-cluster"), site.inventory, "--only", "node", "--out"]
    said = run([*validate, str(Path(site.inventory).parent / "reports")], check=False).stdout
    assert "n1: it does not trust the registry's certificate" in said
    assert "head: it does not trust the registry's certificate" not in said
