"""Pods without Kubernetes: what deploy/kubernetes makes of a machine, in network namespaces.

    components --> the settings of the pods --> create, delete, exec, as the StatefulSet and kubectl do

Each pod has a network, a host name, /run and a resolver of its own, and a volume that stays.  Its name gets an address
only once it runs, and another address in each of its lives.  The secrets are where the manifests mount them.
"""

import ssl
import subprocess
import sys
from contextlib import closing
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path

from tests.helpers.brokers.process import BrokerProcess
from tests.helpers.network.certificates import Authority
from tests.helpers.network.name_server import NameServer
from tests.helpers.network.namespaces import Network
from tests.helpers.programs.image import environment_of_image
from tests.helpers.programs.kustomize import Object, built, container_of, environment_of, one
from tests.helpers.programs.verbs import wakeq
from wakeq.storage.credentials import write_secret

FOLDER = Path(__file__).parents[3] / "deploy/kubernetes"
NAMESPACE = "shop"
DOMAIN = f"{NAMESPACE}.svc.cluster.local"
PORTS = ("--worker-port", "2601", "--http-port", "8080", "--taskflux-port", "2602")
# In mounts and a host name of its own: the files that a kubelet gives a pod, then the program.
# It must not hold on to the disks of other tests: these could not be taken away from them.
ENTER = """
set -e
sed -n 's#^/dev/loop[^ ]* \\([^ ]*\\) .*#\\1#p' /proc/mounts | xargs -r umount
hostname "$1"
mount --bind "$2/hosts" /etc/hosts
mount --bind "$2/resolv.conf" /etc/resolv.conf
mount -t tmpfs tmpfs /run
mkdir /run/wakeq /run/wakeq-tls
mount --bind "$2/wakeq" /run/wakeq
mount --bind "$2/wakeq-tls" /run/wakeq-tls
shift 2
exec "$@"
"""


class Pods:
    """The pods of one StatefulSet, by ordinal."""

    def __init__(self, directory: Path, network: Network, names: NameServer, *components: str) -> None:
        self._network, self._names, self._directory = network, names, directory
        self._make_secrets()
        self._environment: dict[str, str] = {}
        self._container: Object = {}
        self._service = ""
        self.nodes: list[BrokerProcess] = []
        self.apply(*components)

    def apply(self, *components: str) -> None:
        """Take other settings, as `kubectl apply -k` does; a pod has them from its next start on."""
        objects = built(FOLDER, *components)
        stateful = one(objects, "StatefulSet")["spec"]
        self._container = container_of(objects)
        self._service = stateful["serviceName"]
        self._environment = environment_of_image() | environment_of(objects, NAMESPACE)
        for ordinal in range(len(self.nodes), stateful["replicas"]):
            self.nodes.append(BrokerProcess(self._directory / f"data-wakeq-{ordinal}", *PORTS))
        for ordinal, node in enumerate(self.nodes):
            node.prefix = self._prefix(ordinal)

    # --- as the StatefulSet ---

    def create(self, ordinal: int) -> None:
        """Start a pod; its name has an address some time later."""
        self.nodes[ordinal].launch()
        self._names.names[self._name(ordinal)] = self._network.address(ordinal)

    def wait_up(self, ordinal: int) -> None:
        """Wait until the ports of a pod are open."""
        node = self.nodes[ordinal]
        node.wait_ready()
        address = self._network.address(ordinal)
        node.worker_address, node.http_address = (address, 2601), (address, 8080)

    def delete(self, ordinal: int) -> int:
        """Stop a pod in order, and give the next one of that name another address; return the exit status."""
        self._names.names.pop(self._name(ordinal), None)
        status = self.nodes[ordinal].terminate()
        self._network.move(ordinal)
        return status

    def probe(self, ordinal: int, kind: str) -> bool:
        """Ask a pod as the kubelet does: which trusts any certificate, and takes only 200 for a yes."""
        asked = self._container[f"{kind}Probe"]["httpGet"]
        host, port = self.nodes[ordinal].http_address
        if asked.get("scheme") == "HTTPS":
            connection: HTTPConnection = HTTPSConnection(
                host, port, timeout=5, context=ssl._create_unverified_context()
            )
        else:
            connection = HTTPConnection(host, port, timeout=5)
        with closing(connection):
            try:
                connection.request("GET", asked["path"])
                return connection.getresponse().status == 200
            except (OSError, HTTPException):
                # Its ports are closed, as while a node takes over the state of the leader.
                return False

    # --- as kubectl ---

    def exec(self, ordinal: int, *command: str, status: int = 0) -> str:
        """Run a verb of wakeq in a pod; return what it printed."""
        arguments = [*self._prefix(ordinal), sys.executable, "-m", *command]
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=120)
        assert done.returncode == status, (command, done.stdout, done.stderr)
        return done.stdout

    def close(self) -> None:
        for node in self.nodes:
            node.close()

    def peer_address(self, ordinal: int) -> str:
        """The address of a pod between the nodes, as the page adds it."""
        return f"wakeq-{ordinal}.{self._service}.{NAMESPACE}.svc:2603"

    def _name(self, ordinal: int) -> str:
        return f"wakeq-{ordinal}.{self._service}.{DOMAIN}"

    def _prefix(self, ordinal: int) -> tuple[str, ...]:
        variables = (f"{name}={value}" for name, value in self._environment.items())
        entered = ("unshare", "--mount", "--uts", "sh", "-c", ENTER, "sh", f"wakeq-{ordinal}", str(self._directory))
        return (*self._network.prefix(ordinal), *entered, "env", *variables)

    def _make_secrets(self) -> None:
        """Make what the page has an operator make, and the files that a kubelet adds."""
        place, tls = self._directory / "wakeq", self._directory / "wakeq-tls"
        for folder in (place, tls):
            folder.mkdir()
        write_secret(place / "cluster.secret")
        made = wakeq(
            *("token", "create", "ops", "--rights", "publish,fetch,admin", "--out", str(place / "ops.token")),
            WAKEQ_AUTH_TOKENS_FILE=str(place / "tokens.json"),
        )
        assert made.returncode == 0, made.stderr
        authority = Authority(tls)
        hosts = [f"wakeq-{ordinal}.wakeq-nodes.{NAMESPACE}.svc" for ordinal in range(5)]
        pair = authority.issue("wakeq", ",".join(f"DNS:{host}" for host in hosts))
        for old, new in ((pair.cert, "tls.crt"), (pair.key, "tls.key"), (authority.ca.cert, "ca.crt")):
            old.rename(tls / new)
        (self._directory / "hosts").write_text("127.0.0.1 localhost\n")
        searched = f"{DOMAIN} svc.cluster.local cluster.local"
        # Of the kubelet, but for the time, which a test need not wait.
        options = "ndots:5 timeout:1 attempts:1"
        (self._directory / "resolv.conf").write_text(
            f"nameserver {self._network.host}\nsearch {searched}\noptions {options}\n"
        )
