"""NVIDIA cards of a node, at rest and under load."""

import pytest

from validation.checks import gpu, gpu_container, gpu_load, gpu_numa
from validation.checks.node import Subject
from validation.node.plugin import Judge


@pytest.mark.check("gpus")
def test_gpus(subject: Subject, judge: Judge) -> None:
    judge(gpu.gpus(subject))


@pytest.mark.check("gpu-driver")
def test_gpu_driver(subject: Subject, judge: Judge) -> None:
    judge(gpu.gpu_driver(subject))


@pytest.mark.check("gpu-health")
def test_gpu_health(subject: Subject, judge: Judge) -> None:
    judge(gpu.gpu_health(subject))


@pytest.mark.check("gpu-kernel-log")
def test_gpu_kernel_log(subject: Subject, judge: Judge) -> None:
    judge(gpu.gpu_kernel_log(subject))


@pytest.mark.check("gpu-nvlink")
def test_gpu_nvlink(subject: Subject, judge: Judge) -> None:
    judge(gpu.gpu_nvlink(subject))


@pytest.mark.check("gpu-link")
def test_gpu_link(subject: Subject, judge: Judge) -> None:
    judge(gpu_load.gpu_link(subject))


@pytest.mark.check("gpu-compute")
def test_gpu_compute(subject: Subject, judge: Judge) -> None:
    judge(gpu_load.gpu_compute(subject))


@pytest.mark.check("gpu-memory-bandwidth")
def test_gpu_memory_bandwidth(subject: Subject, judge: Judge) -> None:
    judge(gpu_load.gpu_memory_bandwidth(subject))


@pytest.mark.check("gpu-copies")
def test_gpu_copies(subject: Subject, judge: Judge) -> None:
    judge(gpu_load.gpu_copies(subject))


@pytest.mark.check("gpu-heat")
def test_gpu_heat(subject: Subject, judge: Judge) -> None:
    judge(gpu_load.gpu_heat(subject))


@pytest.mark.check("gpu-numa")
def test_gpu_numa(subject: Subject, judge: Judge) -> None:
    judge(gpu_numa.gpu_numa(subject))


@pytest.mark.check("gpu-container")
def test_gpu_container(subject: Subject, judge: Judge) -> None:
    judge(gpu_container.gpu_container(subject))
