"""Hardware, disks, limits, versions and packages of a node."""

import pytest

from validation.checks import node_disk, node_system
from validation.checks.node import Subject
from validation.node.plugin import Judge


@pytest.mark.check("hardware")
def test_hardware(subject: Subject, judge: Judge) -> None:
    judge(node_system.hardware(subject))


@pytest.mark.check("disk-space")
def test_disk_space(subject: Subject, judge: Judge) -> None:
    judge(node_disk.disk_space(subject))


@pytest.mark.check("disk-speed")
def test_disk_speed(subject: Subject, judge: Judge) -> None:
    judge(node_disk.disk_speed(subject))


@pytest.mark.check("limits")
def test_limits(subject: Subject, judge: Judge) -> None:
    judge(node_system.limits(subject))


@pytest.mark.check("shared-memory")
def test_shared_memory(subject: Subject, judge: Judge) -> None:
    judge(node_system.shared_memory(subject))


@pytest.mark.check("versions")
def test_versions(subject: Subject, judge: Judge) -> None:
    judge(node_system.versions(subject))


@pytest.mark.check("packages")
def test_packages(subject: Subject, judge: Judge) -> None:
    judge(node_system.packages(subject))


@pytest.mark.check("identity")
def test_identity(subject: Subject, judge: Judge) -> None:
    judge(node_system.identity(subject))
