"""Certificates that the cluster's own authority issues to its services, and when one must be replaced."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME_DAYS = 825
RENEW_DAYS = 90
"""A deploy replaces a certificate that has less than this left."""


def issue(ca: tuple[str, str], name: str, addresses: Sequence[str]) -> tuple[str, str]:
    """Key and certificate (PEM) for the service host `name`, at these IPv4 addresses; good as server and client."""
    ca_key = serialization.load_pem_private_key(ca[0].encode(), password=None)
    if not isinstance(ca_key, ec.EllipticCurvePrivateKey):
        raise TypeError("the CA's key is not an elliptic-curve key")
    ca_certificate = x509.load_pem_x509_certificate(ca[1].encode())
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(ca_certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=LIFETIME_DAYS))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        .add_extension(x509.SubjectAlternativeName(_names(name, addresses)), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_certificate.public_key()),  # type: ignore[arg-type]
            critical=False,
        )
        .sign(ca_key, hashes.SHA256())
    )
    key_pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return key_pem.decode(), certificate.public_bytes(serialization.Encoding.PEM).decode()


def _names(name: str, addresses: Sequence[str]) -> list[x509.GeneralName]:
    return [x509.DNSName(name), *(x509.IPAddress(ipaddress.IPv4Address(address)) for address in addresses)]


def still_good(certificate_pem: str, ca_pem: str, name: str, addresses: Sequence[str]) -> bool:
    """The certificate is this authority's, names the host with all these addresses, and has time left."""
    certificate = x509.load_pem_x509_certificate(certificate_pem.encode())
    try:
        certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(ca_pem.encode()))
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except Exception:  # whatever is wrong with it, a new one is right
        return False
    left = certificate.not_valid_after_utc - datetime.datetime.now(datetime.UTC)
    return set(_names(name, addresses)) <= set(found) and left > datetime.timedelta(days=RENEW_DAYS)


def addresses_of(certificate_pem: str) -> list[str]:
    """The IPv4 addresses that a certificate names."""
    certificate = x509.load_pem_x509_certificate(certificate_pem.encode())
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(address) for address in found.get_values_for_type(x509.IPAddress)]
