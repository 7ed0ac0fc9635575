"""The cluster's secrets: random, made on the first run, kept on the control machine in one file of mode 0600."""

from __future__ import annotations

import base64
import datetime
import hashlib
import json
import os
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path

import bcrypt
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import NameOID

from inventory.errors import InventoryError
from inventory.secret_file import SIGNING_KEY, read_secrets
from roles.operations.certificates import addresses_of, issue, still_good

CA_YEARS = 20


class SecretStore:
    """Reads secrets; makes and saves those that do not exist yet. Values never appear in its repr or in errors."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __repr__(self) -> str:
        return f"SecretStore({self._path})"

    def munge_key(self) -> str:
        """The key all nodes share, as text (base64 of random bytes, without newline: munge takes any bytes)."""
        return self._get("munge_key", _random_key)

    def ca(self) -> tuple[str, str]:
        """The cluster's own certificate authority: (private key PEM, certificate PEM)."""
        both = self._get("ca", _make_ca)
        key, _, certificate = both.partition("\0")
        return key, certificate

    def server_certificate(self, name: str, addresses: Sequence[str]) -> tuple[str, str]:
        """(key PEM, certificate PEM) of the host `name`, from the cluster's CA, renewed before it expires."""
        ca = self.ca()
        both = self._get(f"tls:{name}", lambda: "\0".join(issue(ca, name, addresses)))
        if not still_good(both.partition("\0")[2], ca[1], name, addresses):
            # Services of one host may name different addresses of it: they share one certificate with all of them.
            both = "\0".join(issue(ca, name, sorted({*addresses_of(both.partition("\0")[2]), *addresses})))
            self._put(f"tls:{name}", both)
        key, _, certificate = both.partition("\0")
        return key, certificate

    def ssh_key(self, name: str) -> tuple[str, str]:
        """(private key in OpenSSH's form, public key line) for one purpose, e.g. "nightly"."""
        both = self._get(f"ssh:{name}", lambda: _make_ssh_key(name))
        private, _, public = both.partition("\0")
        return private, public

    def signing_key(self) -> tuple[str, str]:
        """The Ed25519 key that certificates of nodes and cluster are signed with: (private PEM, public PEM)."""
        private = self._get(SIGNING_KEY, _make_signing_key)
        return private, public_pem(private)

    def password(self, name: str) -> str:
        """A random password without characters to quote, for one purpose, e.g. "monitoring"."""
        return self._get(f"password:{name}", lambda: secrets.token_urlsafe(24))

    def password_hash(self, name: str) -> str:
        """bcrypt of `password(name)`, with a salt that stays: a file that holds it does not change from run to run."""
        password = self.password(name).encode()
        which = hashlib.sha256(password).hexdigest()[:12]  # another password, put there by hand, needs another hash
        return self._get(f"bcrypt:{name}:{which}", lambda: bcrypt.hashpw(password, bcrypt.gensalt(rounds=10)).decode())

    def given(self, name: str) -> str:
        """A secret that only a person knows (a mail account's password), from the file; InventoryError without it."""
        known = self._load()
        if name not in known:
            raise InventoryError(f'the secret "{name}" is missing: add "{name}": "…" to {self._path} (mode 0600)')
        return str(known[name])

    def forget(self, name: str) -> None:
        """Take a secret out of the file; one that is not there is fine."""
        known = self._load()
        if known.pop(name, None) is not None:
            self._save(known)

    def renew_munge_key(self) -> None:
        """Another munge key; the caller sees to it that every node gets it."""
        self._put("munge_key", _random_key())

    def _put(self, name: str, value: str) -> None:
        self._save({**self._load(), name: value})

    def _get(self, name: str, make: Callable[[], str]) -> str:
        known = self._load()
        if name not in known:
            known[name] = make()
            self._save(known)
        return str(known[name])

    def _load(self) -> dict[str, str]:
        return read_secrets(self._path)

    def _save(self, known: dict[str, str]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new = self._path.with_suffix(".new")
        new.unlink(missing_ok=True)
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(known, file, indent=1, sort_keys=True)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._path)


def _random_key() -> str:
    return base64.b64encode(secrets.token_bytes(96)).decode()


def _make_ssh_key(name: str) -> str:
    """A new Ed25519 key pair, separated by a NUL."""
    key = ed25519.Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    ).decode()
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).decode()
    return f"{private}\0{public} klaster-{name}"


def _make_signing_key() -> str:
    return (
        ed25519.Ed25519PrivateKey.generate()
        .private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        .decode()
    )


def public_pem(private: str) -> str:
    """The public half of a PEM key, as anybody may have it."""
    key = serialization.load_pem_private_key(private.encode(), password=None)
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(serialization.Encoding.PEM, form).decode()


def _make_ca() -> str:
    """Key and certificate of a new certificate authority (ECDSA P-256), separated by a NUL."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "klaster cluster CA")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=365 * CA_YEARS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        # Required of an authority by RFC 5280; Python 3.13 refuses one without it.
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.KeyUsage(
                digital_signature=True,
                key_cert_sign=True,
                crl_sign=True,
                content_commitment=False,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                encipher_only=False,
                decipher_only=False,
            ),
            critical=True,
        )
        .sign(key, hashes.SHA256())
    )
    key_pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    return key_pem + "\0" + certificate.public_bytes(serialization.Encoding.PEM).decode()
