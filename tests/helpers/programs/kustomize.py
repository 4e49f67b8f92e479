"""Kustomize, as far as deploy/kubernetes uses it: the objects that a base and some of its components make.

    folder, names of components --> built --> objects

A patch either names operations (JSON patch), or is merged into the object of its kind and name.  It reads files only,
and refuses any word that it does not know.  `by_kubectl` has the same built by the real program.
"""

import json
import re
import shutil
import subprocess
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

# What tells the items of a list apart, by the name of the list; kustomize reads it from the schema of the API.
KEYS = {
    "containers": "name",
    "env": "name",
    "ports": "containerPort",
    "topologySpreadConstraints": "topologyKey",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
WORDS = {"apiVersion", "kind", "resources", "patches"}

Object = dict[str, Any]


def built(folder: Path, *components: str) -> list[Object]:
    """Return the objects of a folder, changed by its components one after another."""
    objects: list[Object] = []
    for place in (folder, *(folder / name for name in components)):
        made = kustomization(place)
        for name in made.get("resources", []):
            objects += yaml.safe_load_all((place / name).read_text())
        for patch in made.get("patches", []):
            apply(place, patch, objects)
    return objects


def kustomization(folder: Path) -> Object:
    """Return what a folder says about itself."""
    made: Object = yaml.safe_load((folder / "kustomization.yaml").read_text())
    assert set(made) <= WORDS, folder
    return made


def apply(place: Path, patch: Object, objects: list[Object]) -> None:
    if "path" in patch:
        change = yaml.safe_load((place / patch["path"]).read_text())
        index = find(objects, change["kind"], change["metadata"]["name"])
        objects[index] = merged(objects[index], change)
    else:
        index = find(objects, **patch["target"])
        for step in yaml.safe_load(patch["patch"]):
            change_at(objects[index], **step)


def find(objects: list[Object], kind: str, name: str) -> int:
    (index,) = [i for i, one in enumerate(objects) if (one["kind"], one["metadata"]["name"]) == (kind, name)]
    return index


def merged(base: Object, patch: Object) -> Object:
    """Merge a patch into an object; the items of a patch come first in a list, then the others."""
    result = deepcopy(base)
    for name, value in patch.items():
        if isinstance(value, dict):
            result[name] = merged(result.get(name, {}), value)
        elif name in KEYS:
            key, old = KEYS[name], {item[KEYS[name]]: item for item in result.get(name, [])}
            new = [merged(old.pop(item[key], {}), item) for item in value]
            result[name] = [item for item in new if item.pop("$patch", "") != "delete"] + list(old.values())
        else:
            result[name] = value
    return result


def change_at(target: Object, op: str, path: str, value: object = None) -> None:
    *parents, last = path.removeprefix("/").split("/")
    place: Any = target
    for word in parents:
        place = place[int(word) if isinstance(place, list) else word]
    assert op in ("remove", "replace"), op
    assert last in place, path
    if op == "remove":
        del place[last]
    else:
        place[last] = value


def one(objects: list[Object], kind: str, name: str = "wakeq") -> Object:
    """Return the only object of a kind and name."""
    return objects[find(objects, kind, name)]


def pod_of(objects: list[Object]) -> Object:
    """Return what the pods of the StatefulSet are made from."""
    spec: Object = one(objects, "StatefulSet")["spec"]["template"]["spec"]
    return spec


def container_of(objects: list[Object]) -> Object:
    """Return the only container of a pod."""
    (container,) = pod_of(objects)["containers"]
    return dict(container)


def environment_of(objects: list[Object], namespace: str) -> dict[str, str]:
    """Return the variables of a pod, as the kubelet expands them: from those that stand above."""
    found: dict[str, str] = {}
    for variable in container_of(objects)["env"]:
        if "valueFrom" in variable:
            assert variable["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.namespace"}}
            found[variable["name"]] = namespace
        else:
            found[variable["name"]] = re.sub(r"\$\((\w+)\)", lambda it: found[it[1]], variable["value"])
    return found


def missing() -> str:
    """Return what this machine lacks to build with the real program, empty if nothing."""
    return "" if shutil.which("kubectl") else "there is no kubectl here to compare with"


def by_kubectl(scratch: Path, folder: Path, *components: str) -> list[Object]:
    """Return the same, built by kubectl from an overlay."""
    overlay = scratch / "overlay"
    overlay.mkdir()
    shutil.copytree(folder, scratch / "base")
    content = {"resources": ["../base"], "components": [f"../base/{name}" for name in components]}
    (overlay / "kustomization.yaml").write_text(json.dumps(content))
    done = subprocess.run(["kubectl", "kustomize", str(overlay)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))
