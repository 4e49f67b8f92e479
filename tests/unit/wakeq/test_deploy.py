"""What is in deploy/ names settings that there are, would start, and is what systemd accepts."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from wakeq.protocol.errors import BadSettings, DamagedFile, WrongVersion
from wakeq.settings_layers import BY_ENVIRONMENT_NAME, load

TOP = Path(__file__).parents[3]
DEPLOY = TOP / "deploy"
ASSIGNED = re.compile(r'^\s*(WAKEQ_\w+)[:=]\s*"?([^"\s\\#]+)"?', re.MULTILINE)


def environment_of(*names: str) -> dict[str, str]:
    """The settings that these files give a broker, the later ones winning."""
    return {key: value for name in names for key, value in ASSIGNED.findall((DEPLOY / name).read_text())}


@pytest.mark.parametrize("name", ["Dockerfile", "compose.yaml", "compose-three.yaml"])
def test_every_setting_that_is_named_exists(name: str) -> None:
    named = environment_of(name)

    assert named
    assert set(named) <= set(BY_ENVIRONMENT_NAME)


@pytest.mark.parametrize("name", ["compose.yaml", "compose-three.yaml"])
def test_a_broker_starts_with_the_settings_of_image_and_composition(name: str) -> None:
    settings = load(environment=environment_of("Dockerfile", name)).settings

    assert settings.host == "0.0.0.0"
    assert settings.auth.required
    assert settings.insecure is (name == "compose.yaml")


def test_the_image_by_itself_lets_nobody_in_by_accident() -> None:
    with pytest.raises(BadSettings, match="other machines"):
        load(environment=environment_of("Dockerfile"))


def test_what_publishes_without_tls_publishes_to_this_machine_only() -> None:
    published = re.findall(r'"([\d.:]+:\d+)"', (DEPLOY / "compose.yaml").read_text())

    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_the_image_is_given_all_that_the_package_is_made_of() -> None:
    kept = {line[1:] for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines() if line.startswith("!")}

    links = {path.resolve().name for path in (TOP / "wakeq").iterdir() if path.is_symlink()}
    assert {"pyproject.toml", "README.md", "LICENSE", "wakeq"} | links == kept


def test_the_unit_is_not_started_again_where_that_cannot_help() -> None:
    unit = (DEPLOY / "wakeq.service").read_text()
    line = re.search(r"^RestartPreventExitStatus=(.*)$", unit, re.MULTILINE)

    assert line is not None
    hopeless = {BadSettings.exit_status, DamagedFile.exit_status, WrongVersion.exit_status}
    assert set(map(int, line[1].split())) == hopeless


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze here to check the unit with")
    unit = tmp_path / "wakeq.service"
    unit.write_text((DEPLOY / unit.name).read_text().replace("/opt/wakeq/bin/wakeq", "/bin/true"))

    checked = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, timeout=60)

    said = [line for line in (checked.stdout + checked.stderr).splitlines() if "wakeq.service" in line]
    assert not said
