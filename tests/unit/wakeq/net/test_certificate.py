"""From when until when a certificate holds, and what `wakeq doctor` says of that."""

import subprocess
import time
from base64 import b64encode
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.helpers.network.certificates import Authority, Pair
from wakeq.config.settings import Settings, Tls
from wakeq.net.certificate import validities
from wakeq.node import doctor
from wakeq.protocol.errors import BadSettings

DAY_S = 86_400
SHORT_TIME = b64encode(  # as a certificate begins; in its moments the seconds are missing
    bytes.fromhex("302c302a020101300030003020") + 2 * b"\x17\x0b4911191234Z"
).decode()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


def of_openssl(path: Path) -> list[datetime]:
    """Return what openssl itself says of the first certificate."""
    command = ("openssl", "x509", "-noout", "-dates", "-in", str(path))
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return [datetime.strptime(line.partition("=")[2], "%b %d %H:%M:%S %Y GMT").replace(tzinfo=UTC) for line in lines]


@pytest.mark.parametrize("days", [2, 60 * 365])  # from 2050 on the year has four digits
def test_validity_equals_that_of_openssl(authority: Authority, days: int) -> None:
    pair = authority.issue(f"for-{days}", days=days)

    assert [list(validity) for validity in validities(pair.cert)] == [of_openssl(pair.cert)]


def test_every_certificate_of_a_chain_is_checked(authority: Authority, tmp_path: Path) -> None:
    leaf = authority.issue("leaf", days=3)
    chain = tmp_path / "chain.pem"
    chain.write_text(f"words before it\n{leaf.cert.read_text()}\n{authority.ca.cert.read_text()}")

    ends = [validity.ends for validity in validities(chain)]

    assert ends == [of_openssl(leaf.cert)[1], of_openssl(authority.ca.cert)[1]]


@pytest.mark.parametrize("body", ["MA==", "MAMwAgIB", "!", SHORT_TIME])
def test_malformed_certificate_is_refused_by_name(tmp_path: Path, body: str) -> None:
    path = tmp_path / "cert.pem"
    path.write_text(f"-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n")

    with pytest.raises(BadSettings, match=r"cert\.pem: it contains a malformed certificate"):
        validities(path)


def found(pair: Pair, monkeypatch: pytest.MonkeyPatch, after_s: int, peer_ca: Path | None = None) -> list[str]:
    """Return what the doctor says of its certificates after so long."""
    now_s = time.time() + after_s
    monkeypatch.setattr("time.time", lambda: now_s)
    tls = Tls(cert_file=pair.cert, key_file=pair.key, peer_ca_file=peer_ca)
    return [f"{level}: {text}" for level, _, text in doctor._security(Settings(tls=tls))]


@pytest.mark.parametrize(
    ("after_s", "level", "says"),
    [
        (0, "good", "valid until"),
        (100 * DAY_S - doctor.CERTIFICATE_NOTE_S + 60, "note", "expires on"),
        (101 * DAY_S, "bad", "expired on"),
        (-DAY_S, "bad", "not valid before"),
    ],
)
def test_doctor_warns_in_time_before_a_certificate_ends(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, after_s: int, level: str, says: str
) -> None:
    pair = authority.issue("doctored", days=100)

    (finding,) = found(pair, monkeypatch, after_s)

    assert finding.startswith(f"{level}: TLS with {pair.cert}: ")
    assert says in finding
    assert str(of_openssl(pair.cert)[0 if after_s < 0 else 1].date()) in finding


def test_doctor_checks_the_authority_of_the_peers(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = authority.issue("long", days=100)

    findings = found(pair, monkeypatch, 0, peer_ca=authority.ca.cert)

    assert [finding.partition(":")[0] for finding in findings] == ["good", "note"]
    assert str(authority.ca.cert) in findings[1]


@pytest.mark.parametrize("line", ["what -----BEGIN CERTIFICATE----- means", "# -----BEGIN CERTIFICATE-----"])
def test_begin_mark_inside_a_line_is_ignored(authority: Authority, tmp_path: Path, line: str) -> None:
    leaf = authority.issue("quoted", days=3)
    path = tmp_path / "quoted.pem"
    path.write_text(f"{line}\n{leaf.cert.read_text()}")

    assert [validity.ends for validity in validities(path)] == [of_openssl(leaf.cert)[1]]


@pytest.mark.parametrize(("after_days", "level"), [(0, "note"), (3, "note"), (101, "bad")])
def test_authorities_are_bad_only_when_all_of_them_have_ended(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, after_days: int, level: str
) -> None:
    """While authorities are changed the file has the old one and the new one."""
    pair = authority.issue("rotated", days=200)
    both = tmp_path / "both.pem"
    both.write_text(authority.ca.cert.read_text() + authority.issue("new-one", days=100).cert.read_text())

    of_pair, of_both = found(pair, monkeypatch, after_days * DAY_S, peer_ca=both)

    assert of_pair.startswith("good: ")
    assert of_both.startswith(f"{level}: TLS with {both}: ")


def test_first_certificate_of_a_chain_decides(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pair = authority.issue("first", days=200)
    chain = tmp_path / "chain.pem"
    chain.write_text(pair.cert.read_text() + authority.ca.cert.read_text())

    (finding,) = found(Pair(chain, pair.key), monkeypatch, 3 * DAY_S)

    assert finding.startswith("note: ")


def test_chain_with_an_ended_first_certificate_is_bad(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pair = authority.issue("ended", days=2)
    chain = tmp_path / "chain.pem"
    chain.write_text(pair.cert.read_text() + authority.issue("holds", days=100).cert.read_text())

    (finding,) = found(Pair(chain, pair.key), monkeypatch, 3 * DAY_S)

    assert finding.startswith("bad: ")


def test_file_without_a_certificate_is_bad(tmp_path: Path) -> None:
    path = tmp_path / "revoked.pem"
    path.write_text("-----BEGIN X509 CRL-----\nMA==\n-----END X509 CRL-----\n")

    finding = doctor._validity(path, datetime.now(UTC), any_will_do=True)

    assert (finding.level, "no certificate" in finding.text) == ("bad", True)
