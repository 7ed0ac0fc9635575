"""The texts and numbers an inventory is made of: each type says what is allowed when the value is not."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated

from pydantic import AfterValidator, Field

_GROUPS_OF_PYINFRA = ("all", "compute")
_RESERVED_HOSTS = ("localhost", "default", "ip6-localhost", "ip6-loopback", *_GROUPS_OF_PYINFRA)
"""`default` is a keyword of slurm.conf; a node named like a group would make `--limit` ambiguous."""
_RESERVED_ACCOUNTS = ("root", "klaster", "slurm", "munge", "sshd", "nobody", "nogroup", "sudo", "daemon", "default")


def host_name(text: str) -> str:
    """A name that hosts files, Slurm and pyinfra all take as it is."""
    if not re.fullmatch(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?", text):
        allowed = "small letters, digits and hyphens, a letter first, no dot, at most 63"
        raise ValueError(f'"{text}" is not a host name: {allowed}{_instead(text)}')
    if text in _RESERVED_HOSTS:
        raise ValueError(f'"{text}" is reserved and can\'t be a name here; choose another')
    return text


def _instead(text: str) -> str:
    guess = re.sub(r"[^a-z0-9-]+", "-", text.partition(".")[0].strip().lower()).strip("-")
    return f' (did you mean "{guess}"?)' if re.fullmatch(r"[a-z][a-z0-9-]{0,62}", guess) else ""


def account_name(text: str) -> str:
    """A name that useradd, groupadd and Slurm take as it is."""
    if not re.fullmatch(r"[a-z][a-z0-9_-]{0,30}", text):
        allowed = "small letters, digits, _ and -, a letter first, at most 31"
        raise ValueError(f'"{text}" is not an account name: {allowed}{_instead(text)}')
    if text in _RESERVED_ACCOUNTS:
        raise ValueError(f'"{text}" belongs to the system; choose another name')
    return text


def address(text: str) -> str:
    """One IPv4 address of a machine."""
    try:
        ip = ipaddress.IPv4Address(text)
    except ValueError:
        hint = " (without the /length)" if "/" in text else ""
        if ":" in text:
            is_mac = re.fullmatch(r"(?i)[0-9a-f]{2}(:[0-9a-f]{2}){5}", text)
            hint = " (that is a MAC address)" if is_mac else " (IPv6 is not supported)"
        raise ValueError(f'"{text}" is not an IPv4 address such as 192.168.1.10{hint}') from None
    if ip.is_loopback or ip.is_multicast or ip.is_unspecified or ip.is_link_local or ip.is_reserved:
        raise ValueError(f'"{text}" can\'t be the address of a node: it is special (loopback, multicast, …)')
    return str(ip)


def cidr(text: str) -> str:
    """An IPv4 network with its prefix length."""
    if "/" not in text:
        raise ValueError(f'"{text}" is not an IPv4 network such as 192.168.1.0/24: the length after / is missing')
    try:
        return str(ipaddress.IPv4Network(text))
    except ValueError:
        raise ValueError(f'"{text}" is not an IPv4 network such as 192.168.1.0/24{_network_hint(text)}') from None


def _network_hint(text: str) -> str:
    if ":" in text:
        return " (IPv6 is not supported)"
    try:
        return f' (did you mean "{ipaddress.IPv4Interface(text).network}"?)'
    except ValueError:
        return ""


def absolute(text: str) -> str:
    """A path on the nodes."""
    if not re.fullmatch(r"/[A-Za-z0-9_./+-]*", text) or ".." in text.split("/"):
        raise ValueError(f'"{text}" must be an absolute path of letters, digits and _ . / + - without ".."')
    return text.rstrip("/") or "/"


def own_file(text: str) -> str:
    """A file of the person at the control machine."""
    if not text.startswith(("/", "~/")):
        raise ValueError(f'"{text}" must be an absolute path or start with ~/')
    return text


def private_key_file(text: str) -> str:
    """The private half of a key pair."""
    if text.endswith(".pub"):
        raise ValueError(f'"{text}" is the public key; name the private one, "{text.removesuffix(".pub")}"')
    return own_file(text)


def public_key(text: str) -> str:
    """One line of authorized_keys."""
    if "PRIVATE KEY" in text:
        raise ValueError("this is a private key; keep it secret, and put the line of the .pub file here")
    if not re.fullmatch(r"(ssh-|ecdsa-|sk-)[a-z0-9@.-]+ [A-Za-z0-9+/=]+( [^\n]*)?", text):
        raise ValueError(f'"{text[:40]}" is not a public key: one line such as "ssh-ed25519 AAAA… alex@laptop"')
    return text


def server_name(text: str) -> str:
    """A host name with dots, or an address."""
    if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9.:-]*[A-Za-z0-9])?", text):
        raise ValueError(f'"{text}" is not the name or address of a server')
    return text


def index_url(text: str) -> str:
    """A package index; a password in it would end up in reports."""
    if not re.fullmatch(r"https?://[^\s'\"]+", text):
        raise ValueError(f'"{text}" is not an address that starts with https:// or http://')
    if "@" in text.split("/")[2]:
        raise ValueError("the index address holds a password; put it into pip's own configuration on the nodes")
    return text


def web_address(text: str) -> str:
    """Where something is sent to or fetched from."""
    if not re.fullmatch(r"https?://[^\s'\"/]+(/[^\s'\"]*)?", text):
        raise ValueError(f'"{text}" is not an address that starts with https:// or http://')
    return text


def mail_address(text: str) -> str:
    """Somebody's mailbox."""
    if not re.fullmatch(r"[^@\s<>,;:\"']+@[A-Za-z0-9.-]+", text):
        raise ValueError(f'"{text}" is not a mail address such as alex@example.org')
    return text


def directory_url(text: str) -> str:
    """Where an LDAP server of others listens; without TLS every password would be readable on the way."""
    if not re.fullmatch(r"ldaps://[A-Za-z0-9.-]+(:[0-9]+)?", text):
        raise ValueError(f'"{text}" is not the address of a directory with TLS: write ldaps://HOST')
    return text


def one_line_text(text: str) -> str:
    """Words for people and for files of one line an entry."""
    if not text.isprintable():
        raise ValueError(f"{text[:40]!r} must be one line of printable characters")
    return text


HostName = Annotated[str, AfterValidator(host_name)]
AccountName = Annotated[str, AfterValidator(account_name)]
Address = Annotated[str, AfterValidator(address)]
Cidr = Annotated[str, AfterValidator(cidr)]
AbsolutePath = Annotated[str, AfterValidator(absolute)]
OwnFile = Annotated[str, AfterValidator(own_file)]
PrivateKeyFile = Annotated[str, AfterValidator(private_key_file)]
PublicKey = Annotated[str, AfterValidator(public_key)]
ServerName = Annotated[str, AfterValidator(server_name)]
IndexUrl = Annotated[str, AfterValidator(index_url)]
WebAddress = Annotated[str, AfterValidator(web_address)]
MailAddress = Annotated[str, AfterValidator(mail_address)]
DirectoryUrl = Annotated[str, AfterValidator(directory_url)]
Text = Annotated[str, AfterValidator(one_line_text)]
# Numbers are strict: "1" in quotes or True is a mistake somebody should hear of.
Port = Annotated[int, Field(strict=True, ge=1, le=65535)]
Speed = Annotated[float, Field(strict=True, gt=0, le=800)]
Mtu = Annotated[int, Field(strict=True, ge=576, le=9216)]
Switch = Annotated[bool, Field(strict=True)]
