"""Signed certificates: genuine, edited, expired, void, of a rehearsal, of another cluster; each one plain sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from inventory.hardware import HardwareLock
from inventory.model import Substrate
from roles.operations.secret_store import SecretStore
from tests.validation.sample_builder import VERSIONS, Builder
from tests.validation.sample_run import healthy, slow_network
from validation import node_gather
from validation.certificate import build_certificate, certificate_json
from validation.certificate_node import node_certificates
from validation.cli import main
from validation.outcome import finish
from validation.run_folder import RunFolder
from validation.signing import BadSignature, NoKey, Signer, sign, signer_of, signing_key
from validation.verify import verify

NOW = datetime(2026, 10, 10, tzinfo=UTC)
INVENTORY = """\
from inventory.model import Cluster, Network, Node

CLUSTER = Cluster(
    name="lab",
    substrate={substrate!r},
    networks=(Network(name="lan", cidr="10.77.0.0/16", speed_gbps=1),),
    nodes=(
        Node(name="head", address="10.77.0.11", roles=("controller",)),
        Node(name="n1", address="10.77.0.12"),
        Node(name="n2", address="10.77.0.13"),
        Node(name="n3", address="10.77.0.14"),
    ),
)
globals().update(CLUSTER.groups(__file__))
"""


def cluster_certificate(substrate: Substrate = "hardware") -> dict[str, Any]:
    sample = healthy(substrate)
    return build_certificate(sample.records, sample.judgement, sample.results_sha256)


class Site:
    """A folder with an inventory, its lock, its keys and signed certificates in it."""

    def __init__(self, folder: Path, substrate: Substrate = "hardware") -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.inventory = folder / "mine.py"
        self.inventory.write_text(INVENTORY.format(substrate=substrate))
        (folder / "mine.hardware.json").write_text(Builder().lock.text)
        _, public = SecretStore(folder / "mine.secrets.json").signing_key()
        self.public = folder / "mine.signing.pub"
        self.public.write_text(public)
        self.key = signing_key(str(self.inventory))
        self.certificate = folder / "certificate.json"
        self.sign(cluster_certificate(substrate))

    def sign(self, document: dict[str, Any]) -> None:
        self.certificate.write_text(certificate_json(sign(document, self.key)))

    def edit(self, old: str, new: str) -> None:
        text = self.certificate.read_text()
        assert old in text
        self.certificate.write_text(text.replace(old, new))

    def verify(self, *, inventory: bool = True, now: datetime = NOW) -> tuple[int, str]:
        key = None if inventory else self.public
        return verify(self.certificate, str(self.inventory) if inventory else None, key, now)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / "site")


@pytest.fixture(autouse=True)
def versions(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, str]]:
    """Nodes that answer with the versions they were certified with; a test changes or removes some."""
    found = {name: dict(VERSIONS) for name in ("head", "n1", "n2", "n3")}

    def ask(_cluster: object, _lock: object, nodes: list[str]) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
        return {n: found[n] for n in nodes if n in found}, {n: "not reached" for n in nodes if n not in found}

    monkeypatch.setattr(node_gather, "ask_versions", ask)
    return found


def test_a_genuine_certificate_of_this_cluster_is_valid(site: Site) -> None:
    """Signature, time, inventory, lock and versions fit: status 0, and the sentence says until when."""
    status, said = site.verify()
    assert (status, "until 2026-11-02" in said, "nothing that it rests on has changed" in said) == (0, True, True)
    status, said = site.verify(inventory=False)
    assert (status, "whether the cluster has changed since was not checked" in said) == (0, True)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"verdict": "PASS"', '"verdict": "FAIL"'),
        ('"2026-11-02T10:15:45Z"', '"2027-11-02T10:15:45Z"'),
        ('"substrate": "hardware"', '"substrate": "rehearsal"'),
        ('"value": "', '"value": "A'),
        ('"algorithm": "ed25519"', '"algorithm": "none"'),
        ('"torch": "2.6.0"', '"torch": "2.7.0"'),
    ],
)
def test_one_edited_character_is_found(site: Site, old: str, new: str) -> None:
    """Whatever was changed in it, the signature no longer fits."""
    site.edit(old, new)
    status, said = site.verify()
    assert status == 1
    assert "was edited or damaged" in said


def test_another_key_is_not_the_clusters(site: Site, tmp_path: Path) -> None:
    """Somebody who signs with a key of his own is found out, also without the inventory."""
    Site(tmp_path / "forger")
    forged = (tmp_path / "forger" / "certificate.json").read_text()
    site.certificate.write_text(forged)
    for inventory in (True, False):
        status, said = site.verify(inventory=inventory)
        assert status == 1
        assert "signed with another key" in said


def test_without_a_known_key_a_signature_proves_nothing(site: Site) -> None:
    """The key inside the file is anybody's: the sentence names it and asks for the cluster's."""
    status, said = verify(site.certificate, None, None, NOW)
    assert status == 1
    assert "nothing here says whose key that is" in said


def test_an_unsigned_certificate_says_so(site: Site) -> None:
    """One of before there were signatures is no valid one."""
    site.certificate.write_text(certificate_json({**cluster_certificate(), "signature": None}))
    assert site.verify() == (
        1,
        f"{site.certificate} is not signed: whoever validated had no signing key, or an old klaster; validate again",
    )


@pytest.mark.parametrize(
    ("now", "part"),
    [
        (datetime(2026, 11, 3, tzinfo=UTC), "expired on 2026-11-02T10:15:45Z"),
        (datetime(2026, 10, 1, tzinfo=UTC), "issued in the future"),
    ],
)
def test_a_certificate_has_its_time(site: Site, now: datetime, part: str) -> None:
    """Neither after its end nor before it was made is it valid."""
    status, said = site.verify(now=now)
    assert status == 1
    assert part in said


def test_a_genuine_failure_certifies_nothing(site: Site) -> None:
    """A signed FAIL is genuine and no certificate to rely on."""
    sample = slow_network()
    site.sign(build_certificate(sample.records, sample.judgement, sample.results_sha256))
    status, said = site.verify()
    assert status == 1
    assert "certifies nothing (FAIL)" in said


def test_a_rehearsal_is_never_taken_for_hardware(tmp_path: Path) -> None:
    """Alone it is refused; with the rehearsal's own inventory it is valid and says REHEARSAL."""
    site = Site(tmp_path / "rehearsal", "rehearsal")
    status, said = site.verify(inventory=False)
    assert (status, "of a REHEARSAL: it certifies no machine" in said) == (1, True)
    status, said = site.verify()
    assert (status, "of a REHEARSAL of lab, which is no hardware" in said) == (0, True)
    site.inventory.write_text(INVENTORY.format(substrate="hardware"))
    status, said = verify(site.certificate, str(moved(site)), None, NOW)
    assert (status, "is about rehearsal, and the inventory describes hardware" in said) == (1, True)


def moved(site: Site) -> Path:
    """The inventory under another name: a loaded one is remembered."""
    new = site.folder / "other.py"
    new.write_text(site.inventory.read_text())
    for end in ("hardware.json", "signing.pub"):
        (site.folder / f"other.{end}").write_bytes((site.folder / f"mine.{end}").read_bytes())
    return new


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ("speed_gbps=1)", "speed_gbps=10)", "what the inventory says of head"),
        ('"10.77.0.12"', '"10.77.0.22"', "what the inventory says of n1"),
        ('        Node(name="n3", address="10.77.0.14"),\n', "", "n3 is no longer in the inventory"),
        ("    ),\n)\n", '        Node(name="n4", address="10.77.0.15"),\n    ),\n)\n', "does not cover n4"),
        ('name="lab"', 'name="den"', "is about cluster lab, not about den"),
    ],
)  # fmt: skip
def test_a_changed_inventory_voids_it(site: Site, old: str, new: str, part: str) -> None:
    """What was declared of a node, its network, or which nodes there are: the sentence names what changed."""
    text = site.inventory.read_text()
    assert old in text
    site.inventory.write_text(text.replace(old, new))
    status, said = verify(site.certificate, str(moved(site)), None, NOW)
    assert status == 1
    assert part in said


def test_people_and_ssh_void_nothing(site: Site) -> None:
    """A new person or another log-in says nothing about the machines."""
    text = site.inventory.read_text().replace("import Cluster, ", "import Cluster, Ssh, Team, User, ")
    more = '    ssh=Ssh(user="me"),\n    teams=(Team(name="vision"),),\n'
    more += '    users=(User(name="ada", uid=10001, teams=("vision",)),),\n)\n'
    site.inventory.write_text(text.replace("    ),\n)\n", f"    ),\n{more}"))
    assert verify(site.certificate, str(moved(site)), None, NOW)[0] == 0


def test_changed_hardware_voids_it(site: Site) -> None:
    """A lock that was accepted anew after the run is other hardware than was certified."""
    lock = Builder().lock
    changed = lock.nodes["n2"].model_copy(update={"memory_mib": 12_000})
    HardwareLock(nodes={**lock.nodes, "n2": changed}).save(site.folder / "mine.hardware.json")
    status, said = site.verify()
    assert (status, "the hardware lock of n2 has changed" in said) == (1, True)


def test_changed_versions_void_it(site: Site, versions: dict[str, dict[str, str]]) -> None:
    """A node that runs other software now: what changed is named."""
    versions["n2"]["torch"] = "2.7.0"
    status, said = site.verify()
    assert status == 1
    assert "n2 was certified with other versions (torch 2.6.0 → 2.7.0)" in said


def test_a_node_that_does_not_answer_leaves_it_open(site: Site, versions: dict[str, dict[str, str]]) -> None:
    """What could not be compared is not called valid, nor void."""
    del versions["n3"]
    status, said = site.verify()
    assert status == 2
    assert "the versions on n3 could not be read (not reached)" in said


def test_a_nodes_own_certificate_is_verified_alike(site: Site) -> None:
    """It is about its node only: another node's change does not void it, its own does."""
    documents = node_certificates(cluster_certificate())
    assert set(documents) == {"head", "n1", "n2", "n3"}
    site.sign(documents["n1"])
    status, said = site.verify()
    assert (status, "of node n1 of cluster lab" in said) == (0, True)
    lock = Builder().lock
    for name, expected in (("n2", 0), ("n1", 1)):
        changed = lock.nodes[name].model_copy(update={"memory_mib": 12_000})
        HardwareLock(nodes={**lock.nodes, name: changed}).save(site.folder / "mine.hardware.json")
        assert site.verify()[0] == expected


def test_a_run_of_some_stages_certifies_no_node() -> None:
    """Without every stage there is no certificate for anybody; nor for a node that failed, or is not locked."""
    full = cluster_certificate()
    assert node_certificates({**full, "stages": {**full["stages"], "training": "not run"}}) == {}
    sample = slow_network()
    failed = build_certificate(sample.records, sample.judgement, sample.results_sha256)
    assert "n3" not in node_certificates(failed)
    n1 = {**full["nodes"]["n1"], "hardware_sha256": None}
    assert "n1" not in node_certificates({**full, "nodes": {**full["nodes"], "n1": n1}})


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (None, "can't be read (No such file or directory)"),
        ("", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "is no certificate"),
        ('{"kind": "run"}', "is no certificate"),
        ("\x00\xff", "is not JSON"),
    ],
)
def test_what_is_no_certificate_is_one_line(
    site: Site, content: str | None, part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A missing file or something else than a certificate is wrong usage, not a verdict."""
    path = site.folder / "other.json"
    if content is not None:
        path.write_bytes(content.encode("latin-1"))
    assert main(["--verify", str(path), "--key", str(site.public)]) == 3
    said = capsys.readouterr().err
    assert part in said
    assert said.count("\n") == 1


FIELDS = ("run_id", "verdict", "expires_at", "issued_at", "node", "nodes", "signature")
VALUES = st.none() | st.text() | st.integers() | st.lists(st.text()) | st.dictionaries(st.text(), st.text())


@given(st.dictionaries(st.sampled_from(FIELDS), VALUES))
def test_any_document_gives_a_sentence(document: dict[str, Any]) -> None:
    """No document, however wrong, ends in anything but a bad signature: nothing of it is believed before that."""
    with pytest.raises(BadSignature):
        signer_of(document)


def test_a_key_that_is_none_is_told(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that holds no key, and --key without --verify, are each one line."""
    assert main(["--verify", str(site.certificate), "--key", str(site.certificate)]) == 3
    assert "is no public key in PEM" in capsys.readouterr().err
    assert main([str(site.inventory), "--key", "x"]) == 3


def test_judged_again_a_certificate_keeps_its_signature(tmp_path: Path) -> None:
    """The same judgement gives the same bytes without the key; another judgement loses the signature."""
    folder = RunFolder(tmp_path)
    folder.logs.mkdir()
    for record in healthy().records:
        folder.append(record)
    key = Ed25519PrivateKey.generate()
    first = finish(folder, key)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    again = finish(folder)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert first.certificate_text == again.certificate_text
    signer_of(json.loads(first.certificate_text))
    folder.certificate.unlink()
    assert finish(folder).certificate_text == first.certificate_text
    other = {**first.certificate, "verdict": "FAIL", "signature": None}
    assert Signer(None, folder.signatures).signed("certificate", other) == other
    folder.signatures.write_text("[")
    assert finish(folder).certificate["signature"] is None


@pytest.mark.parametrize(
    ("write", "part"),
    [
        (lambda path: path.unlink(), "no signing key"),
        (lambda path: path.chmod(0o644), "chmod 600"),
        (lambda path: path.write_text('{"signing_key": "x"}'), "is not an Ed25519 key"),
        (lambda path: path.write_text("{"), "is damaged"),
    ],
)
def test_a_run_without_a_key_says_why(site: Site, write: Callable[[Path], None], part: str) -> None:
    """A missing, readable, wrong or damaged key is a sentence; the run itself goes on unsigned."""
    write(site.folder / "mine.secrets.json")
    with pytest.raises(NoKey, match=part):
        signing_key(str(site.inventory))


def test_openssl_checks_the_same_bytes(site: Site) -> None:
    """The public key is plain PEM, and what is signed is what docs/security.md says: anybody's tool can check it."""
    key = serialization.load_pem_public_key(site.public.read_bytes())
    document = json.loads(site.certificate.read_text())
    assert signer_of(document).public_bytes_raw() == key.public_bytes_raw()  # type: ignore[union-attr]
