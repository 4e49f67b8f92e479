"""Settings: their sources override each other, and an invalid value gets a clear error."""

from pathlib import Path

import pytest

from wakeq.config.layers import load
from wakeq.config.setting import MIB, shown
from wakeq.config.settings import KNOWN, QueueDefaults, Settings, value_of
from wakeq.protocol.catalog import Policies
from wakeq.protocol.errors import BadSettings


def test_settings_without_any_source_have_their_defaults() -> None:
    loaded = load(environment={})

    assert loaded.settings == Settings()
    assert set(loaded.origins.values()) == {"default"}


def test_flags_override_the_environment_and_the_environment_the_file(tmp_path: Path) -> None:
    file = tmp_path / "wakeq.toml"
    file.write_text('host = "localhost"\nworker_port = 1\nhttp_port = 1\n[journal]\nkeep_bytes = "2MiB"\n')
    environment = {"WAKEQ_WORKER_PORT": "2", "WAKEQ_HTTP_PORT": "2"}

    loaded = load(config_file=file, environment=environment, flags={"http_port": 3})

    settings = loaded.settings
    assert (settings.host, settings.worker_port, settings.http_port) == ("localhost", 2, 3)
    assert settings.journal.keep_bytes == 2 * MIB
    assert loaded.origins["host"] == f"file {file}"
    assert loaded.origins["worker_port"] == "environment WAKEQ_WORKER_PORT"
    assert loaded.origins["http_port"] == "flag"


def test_environment_may_name_the_file(tmp_path: Path) -> None:
    file = tmp_path / "wakeq.toml"
    file.write_text('host = "::1"')

    loaded = load(environment={"WAKEQ_CONFIG": str(file)})

    assert loaded.settings.host == "::1"


def test_environment_can_set_every_setting() -> None:
    odd: dict[str, str] = {
        "queue.priority_min": "-5",
        "queue.dead_letter": "graves",
        "host": "::1",
        "monique.routes": "a=b",
        "cluster.worker_address": "a:1",
    }
    # QA needs a range, and a certificate needs its key.
    range_ = {"WAKEQ_QUEUE_PRIORITY_MIN": "-5", "WAKEQ_QUEUE_PRIORITY_MAX": "9"}
    pair = {"WAKEQ_TLS_CERT_FILE": "cert.pem", "WAKEQ_TLS_KEY_FILE": "key.pem"}
    for known in KNOWN.values():
        default = next(word for word in (odd.get(known.name), known.default, 7) if word is not None)
        text = known.one_of[-1] if known.one_of else str(default)

        loaded = load(environment={**range_, **pair, known.environment_name: text})

        value = value_of(loaded.settings, known.name)
        assert isinstance(value, known.kind | type(known.default)), known.name
        assert loaded.origins[known.name] == f"environment {known.environment_name}"


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"WAKEQ_WORKR_PORT": "1"}, "did you mean WAKEQ_WORKER_PORT?"),
        ({"WAKEQ_WORKER_PORT": "99999"}, "from 0 to 65535"),
        ({"WAKEQ_WORKER_PORT": "x"}, "it must be a whole number"),
        ({"WAKEQ_UPGRADE": "perhaps"}, "true or false"),
        ({"WAKEQ_QUEUE_WAKE": "some"}, "one of sleeper, ready, all"),
        ({"WAKEQ_QUEUE_RETRY_BASE": "nan"}, "a number of s from"),
        ({"WAKEQ_MESSAGE_BYTES_MAX": "1MB"}, "also written as 64MiB"),
        ({"WAKEQ_DATA_DIR": ""}, "a path"),
        ({"WAKEQ_CONFIG": "/does/not/exist"}, "cannot read the settings file /does/not/exist"),
    ],
)
def test_invalid_value_in_the_environment_is_explained(environment: dict[str, str], words: str) -> None:
    with pytest.raises(BadSettings) as refusal:
        load(environment=environment)

    assert words in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("wroker_port = 1", "did you mean worker_port?"),
        ("ids_max = 1", "did you mean dedup.ids_max?"),
        ("base = 1", "did you mean queue.retry.base?"),
        ("colour = 1", "`wakeq config show` lists all of them"),
        ("[journal]\nworker_port = 1", "did you mean worker_port?"),
        ("worker_port = true", "it must be a whole number"),
        ("worker_port = 1.5", "it must be a whole number"),
        ("host = 5", "it must be text"),
        ("worker_port = true", "worker_port is true"),
        ("host = ", "is not TOML"),
        ("queue = 3", "queue is 3 (file"),
        ("queue = 3", "write [queue] and its settings below"),
        ("queue = true", "queue is true (file"),
        ("[loging]", "unknown setting loging"),
        ("[journal]\n[journal.segment]", "unknown setting journal.segment"),
        ("[queue]\npriority_min = 5\npriority_max = 4", "swap them"),
        ('[queue]\nstructure = "QA"', "needs a range"),
        ("[queue.retry]\nbase = 9\nmax = 8", "queue.retry.base is above"),
        ("worker_port = 80\nhttp_port = 80", "both 80"),
    ],
)
def test_invalid_value_in_the_file_is_explained(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "wakeq.toml"
    file.write_text(text)

    with pytest.raises(BadSettings) as refusal:
        load(config_file=file, environment={})

    assert words in str(refusal.value)


def test_empty_section_is_accepted(tmp_path: Path) -> None:
    file = tmp_path / "wakeq.toml"
    file.write_text("[journal]\n[queue]\n[queue.retry]\n")

    assert load(config_file=file, environment={}).settings == Settings()


def test_mistakes_are_all_reported_together(tmp_path: Path) -> None:
    file = tmp_path / "wakeq.toml"
    file.write_text('worker_prt = 1\nhttp_port = "x"\n')

    environment = {"WAKEQ_WORKER_PRT": "1", "WAKEQ_QUEUE_TIMEOUT": "1"}

    with pytest.raises(BadSettings) as caught:
        load(config_file=file, environment=environment, flags={"message_bytes_max": 0})

    for words in (
        "5 mistakes: (1) unknown setting worker_prt ",
        "did you mean worker_port? (2) http_port is 'x'",
        "(3) unknown setting WAKEQ_WORKER_PRT (environment); did you mean WAKEQ_WORKER_PORT?",
        "(4) queue.timeout is",
        "(5) message_bytes",
    ):
        assert words in str(caught.value)


def test_kubernetes_service_variables_are_ignored() -> None:
    links = {
        "WAKEQ_PORT": "tcp://10.0.0.1:2601",
        "WAKEQ_SERVICE_HOST": "10.0.0.1",
        "WAKEQ_PORT_2601_TCP": "x",
        "WAKEQ_HTTP_SERVICE_HOST": "10.0.0.1",
        "WAKEQ_HTTP_SERVICE_PORT_WEB": "8080",
        "WAKEQ_HTTP_PORT": "tcp://10.0.0.1:8080",
        "WAKEQ_HTTP_PORT_8080_TCP_ADDR": "10.0.0.1",
    }

    assert load(environment=links).settings == Settings()


def test_port_of_a_kubernetes_service_hides_no_mistake() -> None:
    with pytest.raises(BadSettings, match=r"did you mean WAKEQ_HTTP_PORT\?"):
        load(environment={"WAKEQ_HTP_PORT": "8080"})


PODS = {"cluster.peers": "a-0:1,a-1:1,a-2:1", "insecure": True, "cluster.secret_file": "secret"}


def test_node_auto_is_the_number_of_the_host_name(tmp_path: Path) -> None:
    file = tmp_path / "wakeq.toml"
    file.write_text('[cluster]\nnode = "auto"\n')

    loaded = load(environment={}, config_file=file, flags=PODS, host_name="wakeq-2")

    assert loaded.settings.cluster.node == 2
    assert loaded.origins["cluster.node"] == f"file {file}, auto at host wakeq-2"


def test_node_auto_by_flag_takes_the_name_of_this_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "wakeq-1")

    assert load(environment={}, flags={**PODS, "cluster.node": "auto"}).settings.cluster.node == 1


def test_node_auto_at_a_host_without_a_number_is_refused_with_the_other_mistakes() -> None:
    with pytest.raises(BadSettings, match=r"2 mistakes: .*http_port.*'laptop', does not end in - and a number"):
        load(environment={"WAKEQ_CLUSTER_NODE": "auto"}, flags={"http_port": -1}, host_name="laptop")


def test_node_that_is_neither_a_number_nor_auto_is_explained() -> None:
    with pytest.raises(BadSettings, match="a whole number from 0 to 65535, or auto"):
        load(environment={"WAKEQ_CLUSTER_NODE": "first"})


def test_queue_defaults_equal_those_of_the_catalog() -> None:
    assert QueueDefaults().policies() == Policies()


def test_queue_defaults_reach_the_policies() -> None:
    environment = {"WAKEQ_QUEUE_MAX_SIZE": "5", "WAKEQ_QUEUE_RETRY_BASE": "2", "WAKEQ_QUEUE_LEASE": "strict"}

    policies = load(environment=environment).settings.queue.policies()

    assert (policies.max_size, policies.retry.base, policies.lease) == (5, 2.0, "strict")


@pytest.mark.parametrize(
    ("routes", "words"),
    [
        ("a_b=two words", "character 4 is not one of the bytes"),
        ("a_b=monique.answers", "is for answers"),
        ("a_b", "NAME=VALUE pairs"),
        ("a_b=", "NAME=VALUE pairs"),
    ],
)
def test_invalid_routes_are_explained(routes: str, words: str) -> None:
    with pytest.raises(BadSettings, match=words):
        load(environment={"WAKEQ_MONIQUE_ROUTES": routes})


def test_routes_are_a_table_in_the_file_and_pairs_elsewhere(tmp_path: Path) -> None:
    file = tmp_path / "wakeq.toml"
    file.write_text('[monique.routes]\na_b = "tasks"\nc_d = "others"\n')

    by_file = load(config_file=file, environment={}).settings.monique.routes
    by_flag = load(environment={}, flags={"monique.routes": "a_b=tasks, c_d = others"}).settings.monique.routes

    assert by_file == by_flag == {"a_b": "tasks", "c_d": "others"}
    assert shown(by_file) == '"a_b=tasks,c_d=others"'


# Nodes on several machines need these without TLS.
OTHERS = {"insecure": True, "cluster.secret_file": "secret"}


@pytest.mark.parametrize(
    ("host", "peers"), [("127.0.0.1", "127.0.0.1:1,127.0.0.1:8080"), ("0.0.0.0", "10.0.0.1:1,10.0.0.2:8080")]
)
def test_port_of_the_node_itself_used_by_a_door_is_refused(host: str, peers: str) -> None:
    with pytest.raises(BadSettings, match=r"http_port and this node's own port in cluster\.peers are both 8080"):
        load(environment={}, flags={**OTHERS, "host": host, "cluster.peers": peers, "cluster.node": 1})


@pytest.mark.parametrize(
    ("host", "peers"),
    [
        ("127.0.0.1", "127.0.0.1:8080,127.0.0.1:1"),
        ("10.0.0.2", "10.0.1.1:1,10.0.1.2:8080"),
        ("127.0.0.1", "127.0.0.1:0,127.0.0.1:0"),
    ],
)
def test_port_of_another_node_or_address_is_accepted(host: str, peers: str) -> None:
    load(environment={}, flags={**OTHERS, "host": host, "cluster.peers": peers, "cluster.node": 1})


HERE, ELSEWHERE = "127.0.0.1:1,127.0.0.1:2", "10.0.0.1:1,10.0.0.2:1"
TLS = {"tls.cert_file": "cert", "tls.key_file": "key", "tls.peer_ca_file": "ca"}
SECRET = {"cluster.secret_file": "secret"}


@pytest.mark.parametrize(
    ("peers", "others"),
    [
        (HERE, {}),
        (HERE, {"auth.required": True, **SECRET}),
        (HERE, {"auth.required": True, **TLS}),
        (ELSEWHERE, TLS),
        (ELSEWHERE, {"insecure": True, **SECRET}),
        (ELSEWHERE, {"auth.required": True, **TLS}),
        (None, {"auth.required": True}),
    ],
)
def test_nodes_with_a_proof_of_identity_are_accepted(peers: str | None, others: dict[str, object]) -> None:
    place = {} if peers is None else {"cluster.peers": peers, "cluster.node": 0}

    load(environment={}, flags={**place, **others})


@pytest.mark.parametrize(
    ("peers", "others", "match"),
    [
        (
            HERE,
            {"auth.required": True},
            "requires tokens of clients, but .* `wakeq cluster secret --out FILE` makes one",
        ),
        (HERE, {"auth.required": True, "insecure": True}, "requires tokens of clients"),
        (ELSEWHERE, {"insecure": True}, "has nodes on several machines, but its nodes do not authenticate"),
        (ELSEWHERE, SECRET, "several machines and use no TLS"),
    ],
)
def test_nodes_without_a_proof_of_identity_are_refused(peers: str, others: dict[str, object], match: str) -> None:
    with pytest.raises(BadSettings, match=match):
        load(environment={}, flags={"cluster.peers": peers, "cluster.node": 0, **others})


def test_invalid_worker_address_is_refused() -> None:
    with pytest.raises(BadSettings, match=r"cluster\.worker_address: 'a' is not the address"):
        load(environment={}, flags={"cluster.worker_address": "a"})
