"""The files in deploy/ name existing settings, would start, and are accepted by systemd, Docker and Compose."""

import json
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from tests.helpers.programs.image import dockerfile, environment_of_image, said
from wakeq.cli import main
from wakeq.config.layers import BY_ENVIRONMENT_NAME, load
from wakeq.config.settings import Settings
from wakeq.protocol.errors import BadSettings, DamagedFile, WrongVersion

TOP = Path(__file__).parents[2]
DEPLOY = TOP / "deploy"
COMPOSITIONS = ("compose.yaml", "compose-three.yaml")
INSTRUCTIONS = {
    "FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "VOLUME", "EXPOSE", "HEALTHCHECK", "STOPSIGNAL", "ENTRYPOINT",
    "CMD", "ARG",
}  # fmt: skip
# Of the Compose specification; a word that is not one of them is a mistake, or belongs here.
OF_A_SERVICE = {
    "build", "image", "environment", "ports", "volumes", "restart", "stop_grace_period", "read_only", "tmpfs",
    "cap_drop", "security_opt", "ulimits",
}  # fmt: skip


def services_of(name: str) -> dict[str, dict[str, Any]]:
    services: dict[str, dict[str, Any]] = yaml.safe_load((DEPLOY / name).read_text())["services"]
    return services


def settings_of(service: dict[str, Any]) -> Settings:
    return load(environment=environment_of_image() | service["environment"]).settings


def each_service() -> Iterator[Any]:
    """Every service of every composition, as parameters of a test."""
    for name in COMPOSITIONS:
        for service in services_of(name):
            yield pytest.param(name, service, id=f"{name}:{service}")


# --- the image ---


def test_dockerfile_has_only_instructions_that_docker_knows() -> None:
    words = [word for word, _ in dockerfile()]

    assert words[:2] == ["ARG", "FROM"]
    assert set(words) <= INSTRUCTIONS
    stages = {rest.split()[-1] for rest in said("FROM") if " AS " in rest}
    assert {copy.partition("--from=")[2].split()[0] for copy in said("COPY") if "--from=" in copy} == stages
    assert all(re.fullmatch(r"\$\{PYTHON\}( AS \w+)?", base) for base in said("FROM")), "an image that no digest fixes"
    assert re.fullmatch(r"PYTHON=[\w.-]+:[\w.-]+(@sha256:[0-9a-f]{64})?", said("ARG")[0]), "an image without a version"
    assert said("USER")[-1] not in ("root", "0")


def test_image_starts_a_command_that_exists(capsys: pytest.CaptureFixture[str]) -> None:
    program, *arguments = [part for line in (said("ENTRYPOINT")[-1], said("CMD")[-1]) for part in json.loads(line)]

    assert program == "wakeq"
    assert main([*arguments, "--help"]) == 0
    assert set(environment_of_image()) <= set(BY_ENVIRONMENT_NAME)
    assert environment_of_image()["WAKEQ_DATA_DIR"] == said("VOLUME")[-1]


def test_image_without_settings_is_reachable_by_nobody_by_accident() -> None:
    with pytest.raises(BadSettings, match="other machines"):
        load(environment=environment_of_image())


def test_image_build_is_given_every_part_of_the_package() -> None:
    kept = {line[1:] for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines() if line.startswith("!")}

    links = {path.resolve().name for path in (TOP / "wakeq").iterdir() if path.is_symlink()}
    assert {"pyproject.toml", "README.md", "LICENSE", "wakeq", "deploy/requirements.txt"} | links == kept


# --- compositions ---


@pytest.mark.parametrize(("name", "service"), list(each_service()))
def test_compose_service_has_only_keys_that_compose_knows(name: str, service: str) -> None:
    content = yaml.safe_load((DEPLOY / name).read_text())
    said_of_it = services_of(name)[service]

    assert {key for key in content if not key.startswith("x-")} == {"services", "volumes"}
    assert set(said_of_it) <= OF_A_SERVICE
    build = said_of_it["build"]
    assert (DEPLOY / build["context"]).resolve() == TOP
    assert (TOP / build["dockerfile"]).is_file()
    assert all(isinstance(value, str) for value in said_of_it["environment"].values()), "YAML would make true of it"
    assert set(said_of_it["environment"]) <= set(BY_ENVIRONMENT_NAME)
    for volume in said_of_it["volumes"]:
        source, target, *mode = volume.split(":")
        assert source in content["volumes"] or (source, mode) == ("./secrets", ["ro"]), volume
        assert source not in content["volumes"] or target == environment_of_image()["WAKEQ_DATA_DIR"]


@pytest.mark.parametrize(("name", "service"), list(each_service()))
def test_compose_service_accepts_the_settings_of_image_and_composition(name: str, service: str) -> None:
    composed = services_of(name)[service]
    settings = settings_of(composed)

    assert settings.host == "0.0.0.0"
    assert settings.auth.required
    assert settings.insecure is (name == "compose.yaml")
    listens = {settings.worker_port, settings.http_port, settings.taskflux_port}
    targets = {int(port.rpartition(":")[2]) for port in composed["ports"]}
    assert targets <= listens
    assert listens <= {int(port) for port in said("EXPOSE")[-1].split()}


def test_compose_port_without_tls_is_published_to_this_machine_only() -> None:
    published = [port for service in services_of("compose.yaml").values() for port in service["ports"]]

    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_compose_nodes_are_peers_and_publish_the_ports_they_advertise() -> None:
    services = services_of("compose-three.yaml")
    made = [settings_of(service) for service in services.values()]

    assert [settings.cluster.node for settings in made] == [0, 1, 2]
    assert {settings.cluster.peers for settings in made} == {",".join(f"{name}:2603" for name in services)}
    for service, settings in zip(services.values(), made, strict=True):
        assert settings.cluster.worker_address is not None
        port = settings.cluster.worker_address.rpartition(":")[2]
        assert f"127.0.0.1:{port}:{settings.worker_port}" in service["ports"]
    published = [port.rpartition(":")[0] for service in services.values() for port in service["ports"]]
    assert len(set(published)) == len(published)
    data = [volume for service in services.values() for volume in service["volumes"] if ":ro" not in volume]
    assert len(set(data)) == 3, "two nodes on one directory"


# --- systemd ---


def test_systemd_unit_is_not_restarted_after_permanent_failures() -> None:
    unit = (DEPLOY / "wakeq.service").read_text()
    line = re.search(r"^RestartPreventExitStatus=(.*)$", unit, re.MULTILINE)

    assert line is not None
    hopeless = {2, BadSettings.exit_status, DamagedFile.exit_status, WrongVersion.exit_status}
    assert set(map(int, line[1].split())) == hopeless


@pytest.mark.parametrize(
    "file", [DEPLOY / "wakeq.service", TOP / "docs/guide/deployment.md"], ids=lambda file: file.name
)
def test_systemd_unit_is_restarted_without_limit_after_transient_failures(file: Path) -> None:
    unit = file.read_text()

    assert re.search(r"^StartLimitIntervalSec=0$", unit, re.MULTILINE), "five failures in ten seconds end it for good"
    assert re.search(r"^Restart=always$", unit, re.MULTILINE)


def test_systemd_unit_starts_a_command_that_exists(capsys: pytest.CaptureFixture[str]) -> None:
    unit = (DEPLOY / "wakeq.service").read_text()
    line = re.search(r"^ExecStart=\S+/wakeq (.*)$", unit, re.MULTILINE)

    assert line is not None
    assert main([*line[1].split(), "--help"]) == 0


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze here to check the unit with")
    unit = tmp_path / "wakeq.service"
    unit.write_text((DEPLOY / unit.name).read_text().replace("/opt/wakeq/bin/wakeq", "/bin/true"))

    checked = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, timeout=60)

    complaints = [line for line in (checked.stdout + checked.stderr).splitlines() if "wakeq.service" in line]
    assert not complaints


# --- what the image installs ---


def test_image_installs_only_what_is_named_by_version_and_hash() -> None:
    lines = (DEPLOY / "requirements.txt").read_text().replace("\\\n", " ").splitlines()
    named = [line for line in lines if line and not line.lstrip().startswith("#")]

    assert any("--require-hashes" in run for run in said("RUN"))
    assert all("--require-hashes" in run or "--no-deps" in run for run in said("RUN") if "pip install" in run)
    assert all(re.match(r"[a-z0-9-]+==\S+ .*--hash=sha256:[0-9a-f]{64}", line) for line in named)


def test_image_installs_every_dependency_of_the_package_within_its_bounds() -> None:
    lines = (DEPLOY / "requirements.txt").read_text().splitlines()
    versions = dict(line.split()[0].split("==") for line in lines if "==" in line.split("#")[0])
    wanted = [
        Requirement(one)
        for one in tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]["dependencies"]
    ]

    assert all(any(bound.operator == "<" for bound in one.specifier) for one in wanted)
    assert {one.name: versions[one.name] for one in wanted if versions[one.name] not in one.specifier} == {}
