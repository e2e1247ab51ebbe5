"""Short-lived certificates for TLS servers, made with the openssl command."""

from __future__ import annotations

import os
import subprocess
from typing import NamedTuple

from .errors import HarnessError

# Has everything that strict verifiers require: Python 3.13 rejects an authority without a key usage.
AUTHORITY = """\
[req]
distinguished_name=name
x509_extensions=authority
[name]
[authority]
basicConstraints=critical,CA:TRUE
keyUsage=critical,keyCertSign,cRLSign
subjectKeyIdentifier=hash
"""

SIGNED = """\
basicConstraints=critical,CA:FALSE
keyUsage=critical,digitalSignature
extendedKeyUsage=serverAuth,clientAuth
subjectKeyIdentifier=hash
authorityKeyIdentifier=keyid
subjectAltName=DNS:localhost,IP:127.0.0.1
"""

# Elliptic keys, because an RSA key would take longer to make than a server takes to start.
NEW_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]


class Certificates(NamedTuple):
    """Paths of PEM files: an authority, and the server and the client that it signed."""

    ca: str
    cert: str
    key: str
    client_cert: str
    client_key: str

    def describe(self) -> dict[str, str]:
        """Returns them in the form that the harness prints."""
        return dict(self._asdict())


def make(directory: str, expired: bool = False) -> Certificates:
    """Makes an authority and its two certificates. With `expired`, that of the server has expired."""
    os.makedirs(directory, mode=0o700)
    for name, text in (("authority.conf", AUTHORITY), ("signed.conf", SIGNED)):
        with open(os.path.join(directory, name), "w", encoding="ascii") as file:
            file.write(text)
    _openssl(
        directory,
        *["req", "-x509", *NEW_KEY, "-keyout", "ca.key", "-out", "ca.crt"],
        *["-days", "2", "-subj", "/CN=Tidegate test authority", "-config", "authority.conf"],
    )
    _signed(directory, "server", days=-1 if expired else 2)
    _signed(directory, "client", days=2)
    names = ("ca.crt", "server.crt", "server.key", "client.crt", "client.key")
    return Certificates(*(os.path.join(directory, name) for name in names))


def _signed(directory: str, name: str, days: int) -> None:
    _openssl(
        directory,
        *["req", *NEW_KEY, "-keyout", f"{name}.key", "-out", f"{name}.csr"],
        *["-subj", f"/CN=Tidegate test {name}"],
    )
    _openssl(
        directory,
        *["x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.crt"],
        *["-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial"],
        *["-days", str(days), "-extfile", "signed.conf"],
    )


def _openssl(directory: str, *arguments: str) -> None:
    try:
        subprocess.run(
            ["openssl", *arguments],
            cwd=directory,
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    except FileNotFoundError:
        raise HarnessError("openssl was not found: TLS servers need it for their certificates") from None
    except subprocess.CalledProcessError as failure:
        output = failure.output.decode("utf-8", "replace").strip()
        raise HarnessError(f"openssl {arguments[0]} failed: {output}") from None
