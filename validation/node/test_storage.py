"""Shared folders, their server, and what the teams may keep there."""

import pytest

from validation.checks import node_storage
from validation.checks.node import Subject
from validation.node.plugin import Judge


@pytest.mark.check("storage-mounts")
def test_storage_mounts(subject: Subject, judge: Judge) -> None:
    judge(node_storage.storage_mounts(subject))


@pytest.mark.check("storage-exports")
def test_storage_exports(subject: Subject, judge: Judge) -> None:
    judge(node_storage.storage_exports(subject))


@pytest.mark.check("storage-shared")
def test_storage_shared(subject: Subject, judge: Judge) -> None:
    judge(node_storage.storage_shared(subject))


@pytest.mark.check("storage-quotas")
def test_storage_quotas(subject: Subject, judge: Judge) -> None:
    judge(node_storage.storage_quotas(subject))
