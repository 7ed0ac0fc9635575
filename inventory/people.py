"""People of a cluster: teams, users, what they may take, and the directory that knows them."""

from __future__ import annotations

import zlib
from typing import Literal

from pydantic import Field

from inventory.spec import Spec
from inventory.words import AbsolutePath, AccountName, DirectoryUrl, OwnFile, PublicKey, Switch, Text

FIRST_PERSON_UID = 10_000
"""People start above the range that distributions hand out to local accounts (1000–9999)."""
LAST_PERSON_UID = 59_999
FIRST_TEAM_GID, LAST_TEAM_GID = 70_000, 99_999
"""Above all that Debian and systemd reserve (60000–65535), below the subordinate ids of containers (100000 …)."""


class Limits(Spec):
    """The most that may be in use at one time; what is unset has no limit."""

    gpus: int | None = Field(default=None, strict=True, ge=0, description="GPUs of all running jobs.")
    cpus: int | None = Field(default=None, strict=True, ge=0, description="Processors of all running jobs.")
    memory_gib: int | None = Field(default=None, strict=True, ge=1, description="Memory of all running jobs in GiB.")
    jobs: int | None = Field(default=None, strict=True, ge=0, description="Running jobs.")
    job_minutes: int | None = Field(default=None, strict=True, ge=1, description="Longest time of one job.")


class Team(Spec):
    """People who share a Slurm account, a partition, data and limits."""

    name: AccountName = Field(description="Name of the team, its group, its Slurm account and its partition.")
    description: Text = Field(default="", description="A sentence for people.")
    gid: int | None = Field(
        default=None,
        strict=True,
        ge=FIRST_TEAM_GID,
        le=LAST_TEAM_GID,
        description="Number of its group; unset: made from the name, the same wherever the name is.",
    )
    limits: Limits = Field(default=Limits(), description="What all members together may take.")
    member_limits: Limits = Field(default=Limits(), description="What each member may take of it.")
    readers: tuple[AccountName, ...] = Field(
        default=(), description="Teams and people who may read the team's folder without being in the team."
    )
    quota_gib: int | None = Field(default=None, strict=True, ge=1, description="Most space for the team's files.")

    @property
    def group_id(self) -> int:
        """The declared gid, or one made from the name: it survives the loss of every server."""
        if self.gid is not None:
            return self.gid
        return FIRST_TEAM_GID + zlib.crc32(self.name.encode()) % (LAST_TEAM_GID - FIRST_TEAM_GID + 1)


class User(Spec):
    """A person with the same uid on every node."""

    name: AccountName = Field(description="Log-in name.")
    uid: int = Field(
        strict=True,
        ge=FIRST_PERSON_UID,
        le=LAST_PERSON_UID,
        description="The same number on every node and in shared storage.",
    )
    teams: tuple[AccountName, ...] = Field(
        min_length=1, description="Names of the teams the person is in; jobs go to the first unless told otherwise."
    )
    ssh_keys: tuple[PublicKey, ...] = Field(default=(), description="Public keys, one line each.")
    administrator: Switch = Field(default=False, description="May use sudo, and log in to nodes without a job.")
    limits: Limits = Field(default=Limits(), description="What the person may take in each team.")
    quota_gib: int | None = Field(
        default=None, strict=True, ge=1, description="Most space for the person's files in each shared folder."
    )


class Ldap(Spec):
    """A directory of its own: slapd on the controller, filled from the inventory, read by sssd on every node."""

    kind: Literal["own"] = Field(default="own", description="Tells it from a Directory; leave it out.")
    homes: AbsolutePath = Field(
        default="/home", description="Folder of the home directories; below a declared storage they are the same."
    )
    shell: AbsolutePath = Field(default="/bin/bash", description="Log-in shell of people.")
    cache_days: int = Field(
        default=0, strict=True, ge=0, description="Days that a log-in works without the directory; 0: for ever."
    )


class Directory(Spec):
    """A directory that others run (LDAP, Active Directory, FreeIPA): nodes read it, nothing is written to it."""

    kind: Literal["ldap", "ad", "freeipa"] = Field(description="ad and freeipa: join each node first.")
    domain: Text = Field(min_length=2, description="Its domain, e.g. example.org.")
    servers: tuple[DirectoryUrl, ...] = Field(
        default=(), description='ldap only: e.g. "ldaps://ldap.example.org", tried in this order.'
    )
    search_base: Text = Field(default="", description='ldap only: e.g. "dc=example,dc=org".')
    bind_dn: Text = Field(default="", description="ldap only: whom to bind as; unset: anonymously.")
    bind_password_file: OwnFile | None = Field(
        default=None, description="ldap only: a file of yours with mode 0600 that holds the password."
    )
    ca_file: OwnFile | None = Field(default=None, description="Its certificate authority; unset: the system's.")
    homes: AbsolutePath = Field(default="/home", description="Folder of the home directories.")


Identity = Ldap | Directory
