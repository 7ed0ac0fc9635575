"""pytest plugin of the node stage: every test runs once a node, and its outcome becomes one record.

Fixtures for tests: `subject` (the node, its probe's answers and its peers), `judge` (records a Finding and fails the
test if it is a FAIL) and testinfra's `host` (a connection to the node, for questions the probe does not ask).
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from validation.checks.node import Finding, Gathered, ProbeError, Subject
from validation.model import NodeCheckRecord, Outcome
from validation.node_file import load

Judge = Callable[[Finding], None]
FINDING: pytest.StashKey[Finding] = pytest.StashKey()
GATHERED: pytest.StashKey[Gathered] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("klaster")
    group.addoption("--klaster-gathered", help="file that validation.node_gather wrote")
    group.addoption("--klaster-records", help="file that records are appended to")
    group.addoption("--klaster-nodes", default="", help="comma-separated nodes to test")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "check(name): the registry's name of the check; default: the test's own name")
    config.addinivalue_line("markers", "unreached: runs also for nodes that could not be asked")
    config.stash[GATHERED] = load(Path(config.getoption("--klaster-gathered")))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrise over the nodes; a node that gave no probe has only the tests that say why."""
    if not {"subject", "host", "node_name"} & set(metafunc.fixturenames):
        return
    gathered = metafunc.config.stash[GATHERED]
    nodes = [name for name in metafunc.config.getoption("--klaster-nodes").split(",") if name]
    if not metafunc.definition.get_closest_marker("unreached"):
        nodes = [name for name in nodes if name in gathered.probes]
    metafunc.parametrize("node_name", nodes, scope="session")


@pytest.fixture(scope="session")
def gathered(pytestconfig: pytest.Config) -> Gathered:
    return pytestconfig.stash[GATHERED]


@pytest.fixture
def subject(gathered: Gathered, node_name: str) -> Subject:
    """The node under test."""
    return gathered.subject(node_name)


@pytest.fixture
def judge(request: pytest.FixtureRequest) -> Judge:
    """Record what a pure check found; a FAIL fails the test."""

    def record(finding: Finding) -> None:
        request.node.stash[FINDING] = finding
        if finding.outcome is Outcome.FAIL:
            pytest.fail(f"measured {finding.measured}; required {finding.required}", pytrace=False)

    return record


_HOSTS: dict[str, Any] = {}


@pytest.fixture(scope="session")
def host(gathered: Gathered, node_name: str) -> Any:
    """testinfra's host of the node, connected as the inventory says; one connection a node."""
    import testinfra  # type: ignore[import-untyped]  # costs 0.3 s, and most runs have no test that asks for it

    if node_name not in _HOSTS:
        _HOSTS[node_name] = testinfra.get_host(**connection(gathered, node_name))
    return _HOSTS[node_name]


def connection(gathered: Gathered, name: str) -> dict[str, Any]:
    """Arguments of testinfra.get_host for the ssh backend, from the typed model."""
    node, ssh = gathered.cluster.node(name), gathered.cluster.ssh
    user = node.ssh_user or ssh.user
    known_hosts = Path(ssh.known_hosts).expanduser() if ssh.known_hosts else None
    options = ["-o BatchMode=yes", f"-o StrictHostKeyChecking={ssh.strict_host_keys}", "-o ConnectTimeout=10"]
    if known_hosts:
        options.append(f"-o UserKnownHostsFile={shlex.quote(str(known_hosts))}")
    found: dict[str, Any] = {
        "hostspec": f"ssh://{user}@{node.address}:{ssh.port}",
        "ssh_extra_args": " ".join(options),
        "sudo": user != "root",
        "controlpersist": 60,
    }
    if ssh.key:
        found["ssh_identity_file"] = str(Path(ssh.key).expanduser())
    return found


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Turn the outcome of a test (its set-up included) into a record."""
    result = yield
    report: pytest.TestReport = result.get_result()
    parameters = getattr(item, "callspec", None)
    node = parameters.params.get("node_name") if parameters else None
    if not isinstance(node, str) or report.when == "teardown" or (report.when == "setup" and report.passed):
        return
    error = call.excinfo.value if call.excinfo else None
    record = to_record(node, check_name(item), item.stash.get(FINDING, None), error, report.outcome)
    with Path(item.config.getoption("--klaster-records")).open("a", encoding="utf-8") as file:
        file.write(record.model_dump_json() + "\n")


def check_name(item: pytest.Item) -> str:
    """The marker's name, or the test's own: `test_scratch_is_fast[n1]` gives scratch-is-fast."""
    marker = item.get_closest_marker("check")
    if marker:
        return str(marker.args[0])
    return str(getattr(item, "originalname", item.name)).removeprefix("test_").replace("_", "-")


def to_record(
    node: str, check: str, finding: Finding | None, error: BaseException | None, outcome: str
) -> NodeCheckRecord:
    """FAIL by assertion, ERROR by any other exception: then it is the validator that broke, not the node."""
    if error is not None and not isinstance(error, AssertionError | pytest.fail.Exception | pytest.skip.Exception):
        text = str(error) if isinstance(error, ProbeError) else f"{type(error).__name__}: {error}"
        return NodeCheckRecord(
            node=node,
            check=check,
            outcome=Outcome.ERROR,
            measured="could not be asked",
            cause="check-broken",
            culprit_kind="validator",
            evidence=text,
            remedy="this check broke, not the node: install what is missing there, or report the check",
        )
    if finding is not None:
        return NodeCheckRecord(node=node, check=check, **vars(finding))
    if error is None and outcome == "passed":
        return NodeCheckRecord(node=node, check=check, outcome=Outcome.PASS)
    if isinstance(error, pytest.skip.Exception):
        return NodeCheckRecord(node=node, check=check, outcome=Outcome.SKIPPED, measured=str(error))
    text = str(error)
    return NodeCheckRecord(
        node=node,
        check=check,
        outcome=Outcome.FAIL,
        measured=text.splitlines()[0] if text else "assertion failed",
        required="the assertion of the test holds",
        origin=f"validation/node, test {check}",
        cause=check,
        evidence=text,
        remedy=f"look at the test of {check} in validation/node/",
    )
