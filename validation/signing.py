"""Signatures of certificates: Ed25519 over the document without its signature, as compact JSON with sorted keys."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from inventory.errors import InventoryError
from inventory.loading import secrets_path, signing_public_path
from inventory.secret_file import SIGNING_KEY, read_secrets

CONTEXT = b"klaster certificate 1\n"
"""Stands before what is signed, so that a signature can't be taken for one of something else."""
NODE_PUBLIC_KEY = Path("/etc/klaster/signing.pub")
"""Where the deploy leaves the cluster's public key on each node."""


class NoKey(Exception):
    """There is no usable key; the text is one sentence with the remedy."""


class BadSignature(Exception):
    """The signature is not there, is not one, or does not fit; the text is one sentence."""


def signing_key(inventory_file: str) -> Ed25519PrivateKey:
    """The key in the secrets file beside the inventory; NoKey if the deploy has not made one yet."""
    path = secrets_path(inventory_file)
    try:
        text = read_secrets(path).get(SIGNING_KEY)
    except InventoryError as error:
        raise NoKey(error.message.removeprefix("inventory error: ")) from None
    if text is None:
        raise NoKey(f"no signing key in {path}: run the deploy once more, it makes one")
    try:
        key = serialization.load_pem_private_key(text.encode(), password=None)
    except ValueError:
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise NoKey(f"the {SIGNING_KEY} in {path} is not an Ed25519 key in PEM")
    return key


def public_key_of(inventory_file: str) -> Ed25519PublicKey:
    """The cluster's public key: the file beside the inventory, else the half of the secret one; NoKey if neither."""
    path = signing_public_path(inventory_file)
    return read_public_key(path) if path.exists() else signing_key(inventory_file).public_key()


def read_public_key(path: Path) -> Ed25519PublicKey:
    """From a PEM file; NoKey if it is none."""
    try:
        key = serialization.load_pem_public_key(path.read_bytes())
    except OSError as error:
        raise NoKey(f"{path} can't be read ({error.strerror})") from None
    except ValueError:
        raise NoKey(f"{path} is no public key in PEM; the cluster's is in {NODE_PUBLIC_KEY} on each node") from None
    if not isinstance(key, Ed25519PublicKey):
        raise NoKey(f"{path} is not an Ed25519 key; the cluster's is in {NODE_PUBLIC_KEY} on each node")
    return key


def sign(document: Mapping[str, Any], key: Ed25519PrivateKey) -> dict[str, Any]:
    """The document with its signature; the same document and key give the same bytes."""
    public, value = _raw(key.public_key()), key.sign(_signed_bytes(document))
    signature = {
        "algorithm": "ed25519",
        "public_key": base64.b64encode(public).decode(),
        "value": base64.b64encode(value).decode(),
    }
    return {**document, "signature": signature}


def signer_of(document: Mapping[str, Any]) -> Ed25519PublicKey:
    """The key that signed this document, as it says itself; BadSignature unless the signature fits every byte."""
    signature = document.get("signature")
    if signature is None:
        raise BadSignature("is not signed: whoever validated had no signing key, or an old klaster; validate again")
    try:
        algorithm = signature["algorithm"]
        key = Ed25519PublicKey.from_public_bytes(base64.b64decode(signature["public_key"], validate=True))
        value = base64.b64decode(signature["value"], validate=True)
    except (TypeError, KeyError, ValueError):
        raise BadSignature("was edited or damaged: its signature can't be read") from None
    if algorithm != "ed25519":
        raise BadSignature("was edited or damaged: its signature is of an unknown kind")
    try:
        key.verify(value, _signed_bytes(document))
    except InvalidSignature:
        raise BadSignature("was edited or damaged: its signature does not fit what it says") from None
    return key


def same_key(one: Ed25519PublicKey, other: Ed25519PublicKey) -> bool:
    return _raw(one) == _raw(other)


def fingerprint(key: Ed25519PublicKey) -> str:
    """A short name of a key that two people can compare."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(_raw(key)).digest()).decode().rstrip("=")


class Signer:
    """Signs the documents of a run, with the key or with the signatures that the run left in its folder.

    So a run that is judged again keeps its certificates byte for byte, and one that reads otherwise now is unsigned.
    """

    def __init__(self, key: Ed25519PrivateKey | None, path: Path) -> None:
        self._key, self._path = key, path
        self._signatures: dict[str, Any] = {} if key else _kept(path)

    def signed(self, name: str, document: Mapping[str, Any]) -> dict[str, Any]:
        """The document `name` with a signature; as it is if there is neither a key nor a signature that fits."""
        if self._key:
            found = sign(document, self._key)
            self._signatures[name] = found["signature"]
            return found
        candidate = {**document, "signature": self._signatures.get(name)}
        try:
            signer_of(candidate)
        except BadSignature:
            return dict(document)
        return candidate

    @property
    def text(self) -> str:
        """What is kept of them beside the run's results."""
        return json.dumps(self._signatures, indent=1, sort_keys=True) + "\n"


def _kept(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _raw(key: Ed25519PublicKey) -> bytes:
    return key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)


def _signed_bytes(document: Mapping[str, Any]) -> bytes:
    unsigned = {name: value for name, value in document.items() if name != "signature"}
    return CONTEXT + json.dumps(unsigned, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
