"""The files in deploy/kubernetes are objects of the Kubernetes API, fit each other, and start brokers that find each
other.

The schemas of the API are those of the package kubernetes-validate, so no cluster and no network is needed.
"""

import json
import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.helpers.programs.image import environment_of_image, said
from tests.helpers.programs.kustomize import (
    KEYS,
    Object,
    built,
    by_kubectl,
    container_of,
    environment_of,
    kustomization,
    missing,
    one,
    pod_of,
)
from wakeq.config.layers import BY_ENVIRONMENT_NAME, NOT_SETTINGS, load
from wakeq.config.settings import Settings
from wakeq.node.cluster_plan import ClusterPlan, plan_of
from wakeq.node.node import ANSWER_S_MAX, TRANSFER_S_MAX

TOP = Path(__file__).parents[2]
FOLDER = TOP / "deploy/kubernetes"
PAGE = TOP / "docs/operations/kubernetes.md"
# Releases of the API: the oldest one for which the files are meant, and a new one.
API_VERSIONS = ("1.29", "1.36")
COMPONENTS = ("tls", "one-machine", "five-nodes", "join", "pod-monitor")
# The objects of other programs have no schema there.
OF_OTHERS = {"PodMonitor"}
NAMESPACE = "shop"
EVERY_CHOICE = [(), *((name,) for name in COMPONENTS), COMPONENTS]

every_choice = pytest.mark.parametrize("components", EVERY_CHOICE, ids=lambda names: "+".join(names) or "base")


def settings_of(objects: list[Object], ordinal: int) -> Settings:
    environment = environment_of_image() | environment_of(objects, NAMESPACE)
    ours = {name: value for name, value in environment.items() if name.startswith("WAKEQ_")}
    return load(environment=ours, host_name=f"wakeq-{ordinal}").settings


def plan(settings: Settings) -> ClusterPlan:
    made = plan_of(settings)
    assert made is not None
    return made


# --- structure ---


@every_choice
@pytest.mark.parametrize("version", API_VERSIONS)
def test_objects_are_valid_for_the_api(components: tuple[str, ...], version: str) -> None:
    objects = built(FOLDER, *components)

    kinds = {each["kind"] for each in objects}
    assert kinds - OF_OTHERS == {"Service", "StatefulSet", "PodDisruptionBudget", "NetworkPolicy"}
    for each in objects:
        if each["kind"] not in OF_OTHERS:
            kubernetes_validate.validate(each, version, strict=True)


def test_kustomizations_name_every_file_and_no_other() -> None:
    for folder in (FOLDER, *(FOLDER / name for name in COMPONENTS)):
        made = kustomization(folder)
        named = {*made.get("resources", []), *(patch["path"] for patch in made.get("patches", []) if "path" in patch)}
        files = {path.name for path in folder.iterdir() if path.is_file()} - {"kustomization.yaml"}

        assert made["kind"] == ("Kustomization" if folder == FOLDER else "Component")
        assert named == files, folder
    assert {path.name for path in FOLDER.iterdir() if path.is_dir()} == set(COMPONENTS)


@pytest.mark.skipif(bool(missing()), reason=missing() or "never")
@every_choice
def test_kubectl_builds_the_same_objects(components: tuple[str, ...], tmp_path: Path) -> None:
    def in_order(value: Any, name: str = "") -> Any:
        """Sort what has no order: objects, and the items of lists; the variables keep theirs."""
        if isinstance(value, dict):
            return {key: in_order(item, key) for key, item in value.items()}
        if isinstance(value, list) and name in KEYS and name != "env":
            return sorted((in_order(item) for item in value), key=lambda item: json.dumps(item, sort_keys=True))
        return value

    ours, theirs = built(FOLDER, *components), by_kubectl(tmp_path, FOLDER, *components)

    assert sorted(map(in_order, ours), key=lambda it: (it["kind"], it["metadata"]["name"])) == sorted(
        map(in_order, theirs), key=lambda it: (it["kind"], it["metadata"]["name"])
    )


@every_choice
def test_names_in_one_object_are_those_of_another(components: tuple[str, ...]) -> None:
    objects = built(FOLDER, *components)
    stateful, pod, container = one(objects, "StatefulSet"), pod_of(objects), container_of(objects)
    labels = stateful["spec"]["template"]["metadata"]["labels"]
    ports = {port["name"] for port in container["ports"]}
    volumes = {volume["name"] for volume in pod["volumes"]}
    claims = {claim["metadata"]["name"] for claim in stateful["spec"]["volumeClaimTemplates"]}

    selectors = [one(objects, "Service", name)["spec"]["selector"] for name in ("wakeq", "wakeq-nodes")]
    selectors += [
        stateful["spec"]["selector"]["matchLabels"],
        one(objects, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
    ]
    selectors += [one(objects, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"]]
    selectors += [rule["labelSelector"]["matchLabels"] for rule in pod["topologySpreadConstraints"]]
    assert all(selector == labels for selector in selectors)
    assert one(objects, "Service", stateful["spec"]["serviceName"])["spec"]["clusterIP"] == "None"
    for name in ("wakeq", "wakeq-nodes"):
        assert {port["targetPort"] for port in one(objects, "Service", name)["spec"]["ports"]} <= ports
    allowed = [port["port"] for rule in one(objects, "NetworkPolicy")["spec"]["ingress"] for port in rule["ports"]]
    assert sorted(allowed) == sorted(ports)
    probes = [container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")]
    assert {probe["port"] for probe in probes} == {"http"}
    assert {probe.get("scheme", "HTTP") for probe in probes} == {"HTTPS" if "tls" in components else "HTTP"}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes | claims
    if "pod-monitor" in components:
        (endpoint,) = one(objects, "PodMonitor")["spec"]["podMetricsEndpoints"]
        assert one(objects, "PodMonitor")["spec"]["selector"]["matchLabels"] == labels
        assert endpoint["port"] in ports


@every_choice
def test_pods_never_share_a_machine_unless_it_is_the_only_one(components: tuple[str, ...]) -> None:
    objects = built(FOLDER, *components)
    labels = one(objects, "StatefulSet")["spec"]["template"]["metadata"]["labels"]

    rules = pod_of(objects).get("affinity", {}).get("podAntiAffinity", {})

    required = rules.get("requiredDuringSchedulingIgnoredDuringExecution", [])
    found = [(rule["topologyKey"], rule["labelSelector"]["matchLabels"]) for rule in required]
    assert found == ([] if "one-machine" in components else [("kubernetes.io/hostname", labels)])


# --- settings ---


@every_choice
def test_pods_are_the_nodes_of_one_cluster(components: tuple[str, ...]) -> None:
    objects = built(FOLDER, *components)
    spec = one(objects, "StatefulSet")["spec"]
    made = [settings_of(objects, ordinal) for ordinal in range(spec["replicas"])]

    assert [settings.cluster.node for settings in made] == list(range(spec["replicas"]))
    domain = f"{spec['serviceName']}.{NAMESPACE}.svc"
    for ordinal, settings in enumerate(made):
        assert plan(settings).addresses == tuple(f"wakeq-{node}.{domain}:2603" for node in range(len(made)))
        assert plan(settings).own_host == f"wakeq-{ordinal}.{domain}"
        # The name of a pod may have no address when the pod starts.
        assert plan(settings).listens_at(settings.host) == ("0.0.0.0", 2603)
        assert plan(settings).joins is bool({"five-nodes", "join"} & set(components))
    asked = environment_of(objects, NAMESPACE)["WAKEQ_BROKER"], environment_of(objects, NAMESPACE)["WAKEQ_HTTP"]
    assert asked == tuple(",".join(f"wakeq-{n}.{domain}:{port}" for n in range(len(made))) for port in (2601, 8080))


@every_choice
def test_settings_exist_and_the_ports_are_those_of_the_image(components: tuple[str, ...]) -> None:
    objects = built(FOLDER, *components)
    settings, container = settings_of(objects, 0), container_of(objects)

    ours = {name for name in environment_of(objects, NAMESPACE) if name.startswith("WAKEQ_")}
    assert ours <= set(BY_ENVIRONMENT_NAME) | NOT_SETTINGS
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {
        "worker": settings.worker_port,
        "taskflux": settings.taskflux_port,
        "http": settings.http_port,
        "peers": 2603,
    }
    assert set(ports.values()) == {int(port) for port in said("EXPOSE")[-1].split()}
    assert settings.auth.required
    assert settings.insecure is ("tls" not in components)
    assert (settings.tls.peer_ca_file is not None) is ("tls" in components)
    assert container["image"] == "wakeq"


@every_choice
def test_files_that_the_settings_name_are_mounted(components: tuple[str, ...]) -> None:
    objects = built(FOLDER, *components)
    settings, container = settings_of(objects, 0), container_of(objects)
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}

    named = [
        settings.cluster.secret_file,
        settings.tokens_path,
        Path(environment_of(objects, NAMESPACE)["WAKEQ_TOKEN_FILE"]),
    ]
    named += [file for file in (settings.tls.cert_file, settings.tls.key_file, settings.tls.peer_ca_file) if file]
    assert len(named) == (6 if "tls" in components else 3)
    assert all(mounts[str(file.parent)]["readOnly"] for file in named if file)
    # The root of a volume may be writable by everybody, and holds lost+found.
    assert str(settings.data_dir.parent) == said("VOLUME")[-1] in mounts
    for volume in pod_of(objects)["volumes"]:
        if "secret" in volume:
            assert volume["secret"]["defaultMode"] & 0o007 == 0, "everybody may read it, so the node would not start"


# --- life ---


def test_pod_has_the_time_that_a_shutdown_may_take() -> None:
    objects = built(FOLDER)

    grace_s = pod_of(objects)["terminationGracePeriodSeconds"]
    assert grace_s >= 2 * (TRANSFER_S_MAX + 2 * ANSWER_S_MAX)


def test_nodes_find_each_other_before_they_are_ready_and_start_at_once() -> None:
    objects = built(FOLDER)

    assert one(objects, "Service", "wakeq-nodes")["spec"]["publishNotReadyAddresses"] is True
    assert one(objects, "StatefulSet")["spec"]["podManagementPolicy"] == "Parallel"
    assert one(objects, "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1
    startup = container_of(objects)["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] == 3600


def test_pod_is_allowed_in_a_restricted_namespace() -> None:
    """https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted"""
    pod, container = pod_of(built(FOLDER, *COMPONENTS)), container_of(built(FOLDER, *COMPONENTS))

    user = next(int(rest) for rest in said("USER"))
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert {pod["securityContext"][name] for name in ("runAsUser", "runAsGroup", "fsGroup")} == {user}
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert all(set(volume) - {"name"} <= {"secret", "emptyDir"} for volume in pod["volumes"])
    assert pod["automountServiceAccountToken"] is False


# --- the page ---


def test_page_explains_every_file_and_names_what_the_files_name() -> None:
    text, objects = PAGE.read_text(), built(FOLDER, *COMPONENTS)

    for path in FOLDER.rglob("*.yaml"):
        if path.parent == FOLDER and path.name != "kustomization.yaml":
            assert f"`{path.name}`" in text, path.name
    for name in COMPONENTS:
        assert f"`{name}`" in text, name
    secrets = {volume["secret"]["secretName"] for volume in pod_of(objects)["volumes"] if "secret" in volume}
    assert {name for name in secrets if f"create secret generic {name} " in text} == secrets
    keys = {Path(path).name for path in environment_of(objects, NAMESPACE).values() if path.startswith("/run/")}
    assert {key for key in keys if f"--from-file={key}" in text} == keys
    assert f"data-{one(objects, 'StatefulSet')['metadata']['name']}-2" in text, "the claim of a lost volume"


def on_the_page(*kinds: str) -> list[Object]:
    """Return the objects of these kinds that stand on the page."""
    blocks = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    found = [made for block in blocks for made in yaml.safe_load_all(block) if made["kind"] in kinds]
    assert {made["kind"] for made in found} == set(kinds)
    return found


@pytest.mark.parametrize("version", API_VERSIONS)
def test_objects_on_the_page_are_valid_for_the_api(version: str) -> None:
    for made in on_the_page("Deployment", "Pod"):
        kubernetes_validate.validate(made, version, strict=True)


def test_clients_on_the_page_have_the_addresses_of_the_nodes() -> None:
    (mailer,) = on_the_page("Deployment")
    (container,) = mailer["spec"]["template"]["spec"]["containers"]

    assert container["env"][0]["value"] == environment_of(built(FOLDER), NAMESPACE)["WAKEQ_BROKER"]


def test_repair_pod_on_the_page_has_the_volume_and_the_user_of_a_node() -> None:
    (repair,) = on_the_page("Pod")
    pod, objects = repair["spec"], built(FOLDER)
    (claim,) = one(objects, "StatefulSet")["spec"]["volumeClaimTemplates"]
    (container,), (volume,) = pod["containers"], pod["volumes"]

    assert pod["securityContext"].items() <= pod_of(objects)["securityContext"].items()
    assert volume["persistentVolumeClaim"]["claimName"] == f"{claim['metadata']['name']}-wakeq-0"
    assert container["volumeMounts"] == container_of(objects)["volumeMounts"][:1]


def test_overlays_on_the_page_name_folders_that_exist() -> None:
    overlays = on_the_page("Kustomization")

    for overlay in overlays:
        for place in (*overlay["resources"], *overlay.get("components", [])):
            folder = (TOP / "my-broker" / place).resolve()
            assert folder.is_relative_to(FOLDER), place
            assert (folder / "kustomization.yaml").is_file(), place
