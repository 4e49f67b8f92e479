"""Certificates for tests: an authority of their own, and what it signs, made by openssl in a directory of the test.

    Authority(directory) --> issue(name) --> Pair(cert, key)

Nothing is kept between runs, so nothing expires.
"""

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


class Pair(NamedTuple):
    """A certificate and its key, PEM."""

    cert: Path
    key: Path


class Authority:
    """Whoever trusts `ca.cert` trusts what this issues."""

    def __init__(self, directory: Path, name: str = "test authority") -> None:
        if shutil.which("openssl") is None:
            pytest.skip("there is no openssl here to make certificates with")
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self.ca = Pair(directory / "ca.pem", directory / "ca.key")
        usage = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")  # Python 3.13 trusts no authority without it
        _openssl("req", "-x509", *CURVE, "-subj", f"/CN={name}", "-days", "2", *usage, *_out(self.ca))

    def issue(self, name: str, hosts: str = "DNS:localhost,IP:127.0.0.1,IP:::1", days: int = 2) -> Pair:
        """Make a certificate for these hosts."""
        pair = Pair(self._directory / f"{name}.pem", self._directory / f"{name}.key")
        signed_by = ("-CA", str(self.ca.cert), "-CAkey", str(self.ca.key))
        subject = ("-subj", f"/CN={name}", "-addext", f"subjectAltName={hosts}", "-days", str(days))
        _openssl("req", "-x509", *CURVE, *subject, "-addext", "basicConstraints=CA:FALSE", *signed_by, *_out(pair))
        return pair


def _out(pair: Pair) -> tuple[str, ...]:
    return "-keyout", str(pair.key), "-out", str(pair.cert)


def _openssl(*arguments: str) -> None:
    subprocess.run(("openssl", *arguments), check=True, capture_output=True, timeout=30)
