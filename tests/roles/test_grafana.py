"""Grafana: one version, one administrator, nobody anonymous, TLS, and our dashboards."""

from __future__ import annotations

from pathlib import Path

import pytest

from inventory.errors import InventoryError
from inventory.model import Grafana, Monitoring
from roles import grafana
from roles.operations.tree import Tree
from tests.roles.sample import cluster

GRAFANA = Grafana(repository="https://packages.example/grafana", key_file="~/grafana.asc", version="11.6.0")
CLUSTER = cluster(monitoring=Monitoring(grafana=GRAFANA))


def _tree() -> Tree:
    return grafana.plan(CLUSTER, GRAFANA, "ADMIN", "METRICS", ("KEY", "CERTIFICATE"))


def _content(tree: Tree, name: str) -> str:
    return next(file.content for file in tree.files if file.path.endswith(name))


def test_the_version_is_pinned_to_a_signed_repository() -> None:
    """The repository is only believed with the person's key, and gives exactly the inventory's version."""
    tree = grafana.repository_plan(GRAFANA, "ARMOR")
    assert "Pin: version 11.6.0\nPin-Priority: 1001" in _content(tree, "preferences.d/klaster-grafana")
    sources = _content(tree, ".sources")
    assert "URIs: https://packages.example/grafana\n" in sources
    assert "Signed-By: /etc/apt/keyrings/klaster-grafana.asc" in sources


def test_nobody_gets_in_without_a_password() -> None:
    """No anonymous access, no sign-up, TLS on the controller's address, the password in a file of Grafana's."""
    text = _content(_tree(), "grafana.ini")
    for line in ("protocol = https", "http_addr = 10.0.0.1", "allow_sign_up = false"):
        assert line in text
    assert "[auth.anonymous]\nenabled = false" in text
    for file in _tree().files:
        if any(word in file.content for word in ("ADMIN", "METRICS", "KEY")):
            assert (file.mode, file.group) == ("640", "grafana"), file.path


def test_the_dashboards_and_their_source_are_provisioned() -> None:
    """All six dashboards, and the Prometheus that they name, asked over TLS with its password."""
    boards = [file for file in _tree().files if file.path.startswith(f"{grafana.DASHBOARDS}/")]
    assert len(boards) == 6
    source = _content(_tree(), "datasources/klaster.yml")
    assert "uid: klaster-prometheus" in source
    assert "url: https://10.0.0.1:9090" in source
    assert "tlsCACert: $__file{/usr/local/share/ca-certificates/klaster.crt}" in source


def test_a_key_that_is_none_is_refused(tmp_path: Path) -> None:
    """A page saved instead of the key, or no file at all, is one line."""
    page = tmp_path / "key.asc"
    page.write_text("<html>", encoding="utf-8")
    wrong = GRAFANA.model_copy(update={"key_file": str(page)})
    with pytest.raises(InventoryError, match="key_file"):
        grafana.repository_key(wrong)
