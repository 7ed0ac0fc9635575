"""What each cause of a failure means, as the end of a sentence about its culprit; an unknown cause is said as it is."""

from __future__ import annotations

from validation.model import Culprit
from validation.report_words import printable

CAUSES = {
    "network": "its network is slower than declared, in both directions",
    "network-egress": "it sends slower than its network is declared",
    "network-ingress": "it receives slower than its network is declared",
    "latency": "its network answers too slowly",
    "loss": "its network loses packets",
    "network-unsteady": "its network comes and goes",
    "data-corruption": "data arrived other than it was sent",
    "silent-data-corruption": "it computes wrong results without any error",
    "parameters-diverge": "it ended the same training with other parameters than its peers",
    "unreachable": "it cannot be reached",
    "firewall": "connections between nodes are blocked",
    "firewall-inbound": "connections to it are blocked, though it can connect to others",
    "firewall-outbound": "its connections to others are blocked, though they can connect to it",
    "route": "its packets to the others leave by the wrong interface",
    "address": "it does not have its declared address",
    "mtu": "its MTU is not the declared one",
    "link-speed": "its network card runs at another speed than declared",
    "compute": "it computes slower than its peers",
    "slower-than-before": "it is slower than in all its earlier runs, twice in a row",
    "heat": "it slows down under long load",
    "hang": "its process stopped answering and the others waited for it",
    "killed": "its process was killed",
    "out-of-memory": "its memory ran out",
    "crash": "its process ended with an error",
    "exception": "every rank raised the same error, so no node is to blame",
    "collective-mismatch": "ranks called different collectives, which no network can repair",
    "not-started": "they could not be started, so their nodes were not tested",
    "slurm-step": "Slurm could start nothing on it; over ssh it was tested all the same",
    "clock": "its clock is wrong",
    "control-clock": "the clock of the machine that runs validate-cluster is wrong",
    "host-name": "it has another host name than the inventory gives it",
    "name-resolution": "host names do not resolve there as they must",
    "dns": "its name server does not answer",
    "identity": "accounts have other numbers there than on its peers",
    "disk-full": "its disk is full",
    "inodes-full": "its file system has no room for more files",
    "disk-read-only": "its file system cannot be written",
    "address-conflict": "it holds the address of another node as well",
    "disk-slow": "its disk is far slower than its peers'",
    "large-packets": "small packets pass and those that fill a frame are lost",
    "link-flapping": "its link went down while the run went on",
    "mount": "a declared storage is not mounted there",
    "mount-type": "a declared storage is mounted there with another file system",
    "storage-stale": "a mounted storage does not answer there",
    "nfs-down": "the NFS server is down, and with it every shared folder",
    "mount-source": "another folder is mounted in the place of a shared one",
    "mount-options": "a shared folder is mounted with other options than it should be",
    "exports": "the NFS server does not serve a folder to one of its nodes",
    "exports-open": "a folder is served to somebody who is no node of the cluster",
    "exports-root": "root of a node is root in a shared folder",
    "storage-shared": "what one node writes into a shared folder, another does not read there",
    "quotas": "a declared quota is not the one that is set",
    "shared-memory": "its /dev/shm is too small",
    "limits": "its limits are too low for training jobs",
    "consistency": "its software differs from its peers'",
    "packages": "packages are half installed there",
    "torch-missing": "torch is not installed there",
    "processors": "it has other processors than the hardware lock says",
    "memory": "it has another amount of memory than the hardware lock says",
    "gpu-lost": "a GPU that the hardware lock knows is gone",
    "gpu-model": "its GPU is not the declared one",
    "driver-hangs": "its GPU driver does not answer",
    "driver": "its GPU driver does not work",
    "driver-mismatch": "its GPU driver's kernel module and library are of different versions",
    "driver-version": "its GPU driver is not of the declared set",
    "driver-cuda": "its GPU driver is too old for the CUDA of torch",
    "gpu-changed": "a GPU is there that the hardware lock does not know",
    "gpu-moved": "a GPU is in another slot than the hardware lock says",
    "gpu-memory": "a GPU has another amount of memory than the hardware lock says",
    "gpu-ecc": "memory errors that could not be corrected",
    "gpu-memory-worn": "its memory is worn out",
    "gpu-reset-due": "it must be reset",
    "gpu-heat": "heat slows it down",
    "gpu-power": "its power supply slows it down",
    "gpu-hangs": "its GPUs did not finish their load",
    "gpu-link": "its PCIe link is slower than it can be",
    "gpu-slow": "it computes slower than like cards",
    "gpu-memory-slow": "its memory is slower than that of like cards",
    "gpu-wrong-results": "it computes wrong results",
    "p2p": "copies between its GPUs do not arrive as sent",
    "nvlink": "an NVLink failed",
    "gpu-copies-slow": "copies between two of its GPUs are slower than they can be",
    "gpu-container": "its GPUs do not work in a container",
    "gpu-binding": "Slurm runs its jobs on cores far from their GPU",
    "gpu-numa": "its firmware does not say where its GPUs are",
    "interface-choice": "programs there are told another interface than that of the declared network",
    "rdma-inactive": "none of its RDMA ports is active",
    "rdma-slow": "its RDMA is slower than its ports",
    "registry-trust": "it does not trust the registry's certificate",
    "registry-account": "the registry does not know its account",
    "registry-open": "the registry lets everybody in",
    "registry": "the container registry does not answer",
    "munge": "its munge key is not the cluster's",
    "not-in-slurm": "Slurm does not know it",
    "slurm-state": "Slurm does not hold it for ready",
    "slurmctld-unreachable": "it cannot reach the Slurm controller",
    "check-broken": "a check could not do its work; that is no fault of a node",
}
LINK_CAUSES = {
    "unreachable": "no connection can be made between the two",
    "firewall": "connections are blocked one way between the two",
    "network": "slower than declared both ways, while both ends are good with others",
    "rdma-slow": "RDMA is slower than the ports, while both ends are good with others",
    "network-one-way": "slower than declared one way, while both ends are good with others",
    "network-unsteady": "it comes and goes",
}
SWITCH_CAUSES = {
    "uplink": "its nodes are slow with nodes on other leaves and good among themselves",
    "switch": "its nodes are slow with each other and with all others",
    "spine": "all leaves are slow with each other and good inside",
}
CLUSTER_CAUSES = {
    "network": "nearly every node is slower than its network is declared, all alike",
    "unreachable": "most nodes cannot be reached",
    "data-corruption": "sums over all nodes are wrong, and no single node stands out",
    "network-both-ways": "it slows every all-reduce it is in, though its links are good one way at a time",
    "collective": "all nodes together are slow, though every pair is good alone",
    "scaling": "training on all nodes is slower than its computing and communicating explain",
    "hang": "processes on most nodes stopped answering",
    "killed": "processes on most nodes were killed",
    "out-of-memory": "memory ran out on most nodes",
    "crash": "processes on most nodes ended with an error",
}


def culprit_sentence(culprit: Culprit) -> str:
    """What is wrong, in one plain sentence without its full stop."""
    kinds = {"link": LINK_CAUSES, "cluster": CLUSTER_CAUSES, "switch": {**CLUSTER_CAUSES, **SWITCH_CAUSES}}
    said = kinds.get(culprit.kind, {}).get(culprit.cause) or CAUSES.get(culprit.cause)
    if said is None and culprit.cause.endswith("-down"):
        said = f"{culprit.cause.removesuffix('-down')} is not running"
    subject = f"Link {culprit.subject}" if culprit.kind == "link" else culprit.subject
    return printable(f"{subject}: {said or culprit.cause.replace('-', ' ')}")


def culprit_effect(culprit: Culprit) -> str:
    """What the verdict does to nodes."""
    return (
        f"{culprit.node} is out of service until it passes"
        if culprit.node
        else "no node is taken out of service for it"
    )
