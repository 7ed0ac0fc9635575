"""What monitoring puts where, and that nothing of it is open or readable to everybody."""

from __future__ import annotations

import json
import re

import pytest

from inventory.errors import InventoryError
from inventory.model import Cluster, External, Mail, Monitoring, Webhook
from roles import monitoring
from roles.operations.tree import Tree
from tests.roles.sample import cluster

ACCESS = monitoring.Access("KEY", "CERTIFICATE", "$2b$10$hash")


def _watched(**changes: object) -> Cluster:
    return cluster(monitoring=Monitoring(**changes))


def _content(tree: Tree, path: str) -> str:
    return next(file.content for file in tree.files if file.path == path)


def _head(some: Cluster, smtp: str = "") -> Tree:
    assert some.monitoring is not None
    urls = tuple(webhook.url or "https://chat.example/TOKEN" for webhook in some.monitoring.webhooks)
    return monitoring.head_plan(some, some.monitoring, "PASSWORD", monitoring.Receivers(smtp, urls))


def test_every_node_is_a_target_by_its_address_and_name() -> None:
    """Prometheus asks each node's exporter over TLS with a password, and calls it by the node's name."""
    text = _content(_head(_watched()), "/etc/prometheus/prometheus.yml")
    for node in cluster().nodes:
        assert (
            f'targets: ["{node.address}:9100"]\n        labels: {{ node: {node.name}, instance: {node.name} }}' in text
        )
    job = text.partition("job_name: node")[2].partition("job_name")[0]
    assert "scheme: https" in job
    assert "password_file" in job


def test_nothing_listens_on_every_address() -> None:
    """Each server is bound to the node's own address, and the gossip port of Alertmanager stays closed."""
    some = _watched()
    texts = [file.content for file in _head(some).files if file.path.startswith("/etc/default/")]
    texts += [_content(monitoring.node_plan(some, some.node("n1"), ACCESS), "/etc/default/prometheus-node-exporter")]
    listening = [address for text in texts for address in re.findall(r"listen-address=(\S*)", text)]
    assert sorted(listening) == ["", "10.0.0.1:9090", "10.0.0.1:9093", "10.0.0.2:9100"]
    assert all("--web.config.file=/etc/prometheus/klaster-web.yml" in text for text in texts)


def test_secrets_are_not_for_everybody() -> None:
    """Whatever holds a key, a password, its hash or a webhook's token is readable for root and prometheus only."""
    some = _watched(webhooks=(Webhook(name="chat"),))
    files = [*_head(some, "SMTP").files, *monitoring.node_plan(some, some.node("head"), ACCESS).files]
    for file in files:
        if any(word in file.content for word in ("KEY", "PASSWORD", "$2b$", "TOKEN", "SMTP")):
            assert (file.mode, file.group) == ("640", "prometheus"), file.path
    assert sum(file.mode == "640" for file in files) == 5


def test_people_and_programs_hear_of_alerts() -> None:
    """Each mail and each webhook of the inventory is in Alertmanager's receiver; a password only as a file."""
    mail = Mail(to="alex@example.org", sender="c@example.org", server="mail.example.org", user="c")
    some = _watched(mail=(mail,), webhooks=(Webhook(name="chat", url="https://chat.example/x"),))
    text = _content(_head(some, "SMTP"), "/etc/prometheus/alertmanager.yml")
    for words in ("to: alex@example.org", "smarthost: mail.example.org:587", "auth_password_file", "chat.example/x"):
        assert words in text
    assert "SMTP" not in text


def test_retention_is_the_inventorys() -> None:
    """Metrics are kept as long, and take as much disk, as the inventory says."""
    text = _content(_head(_watched(retention_days=7, retention_gib=3)), "/etc/default/prometheus")
    assert "retention.time=7d" in text
    assert "retention.size=3GB" in text


def test_the_agent_knows_what_its_node_must_have() -> None:
    """Cards, units by role, and the shared folders of its roles."""
    some = cluster(monitoring=Monitoring(), storage=(External(path="/data", on=("compute",)),))
    config = json.loads(_content(monitoring.node_plan(some, some.node("n2"), ACCESS), "/etc/klaster/agent.json"))
    assert config["gpus"] == 2
    assert config["mounts"] == ["/data"]
    assert {"munge.service", "slurmd.service"} <= set(config["units"])
    head = monitoring.agent_config(some, some.node("head"))
    assert head["mounts"] == []
    assert "slurmctld.service" in str(head["units"])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Mail(to="alex", sender="c@x.org", server="m.x.org"), "not a mail address"),
        (lambda: Webhook(name="chat", url="chat.example/x"), "https://"),
        (lambda: Monitoring(retention_days=0), "retention_days"),
    ],
)
def test_a_wrong_receiver_is_refused(make: object, words: str) -> None:
    """A mistake in the inventory's part is one line before any host is contacted."""
    assert callable(make)
    with pytest.raises(InventoryError, match=words):
        make()
