"""Proves what a check of executors says, and what is sent to them; the jobs are run by tests/spark/cluster."""

import asyncio
import platform
import subprocess
import sys
import zipfile
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

import wakeq
from tests.helpers.brokers.node_here import node_here, run
from wakeq.config.settings import Auth
from wakeq.pipeline import cluster
from wakeq.pipeline.cluster import Check, Place
from wakeq.pipeline.stream.broker import Broker
from wakeq.protocol.access import Grant, Right, digest_of
from wakeq.protocol.errors import BadSettings
from wakeq.storage.credentials import TokenFile

BROKER = "broker.example:2601"
NO_TOKEN = "a token is needed here"
WHOLE = {"python": "3.11.7", "wakeq": "0.1.0", "msgspec": "0.22.0", "pyarrow": "26.0.1", "numpy": "2.4.6"}
DRIVER = Place("driver", "home/ada", "/usr/bin/python3", WHOLE, {BROKER: ""})
EXECUTOR = replace(DRIVER, host="node-7", directory="app-1/0")


class Executors:
    """A session whose executors say what the test wants."""

    def __init__(self, *said: Place, why_no_plan: str = "", master: str = "spark://m:7077") -> None:
        self.said, self.why_no_plan = said, why_no_plan
        self.conf = {"spark.master": master}

    @property
    def read(self) -> Any:
        if self.why_no_plan:
            raise RuntimeError(f"An error occurred\n\tat x.y(z.java)\nCaused by: {self.why_no_plan}")
        return Anything()


class Anything:
    """Whatever is asked of it, it goes on."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: self


def checked(
    monkeypatch: pytest.MonkeyPatch, executors: Executors, *, driver: Place = DRIVER, broker: str = BROKER
) -> Check:
    monkeypatch.setattr(cluster, "_run_everywhere", lambda spark, probe: list(map(asdict, executors.said)))
    monkeypatch.setattr(cluster, "_probe", lambda broker: lambda hold_s: asdict(driver))
    session: Any = executors
    return cluster.check(session, broker=broker)


def test_check_of_executors_that_have_everything_is_ok(monkeypatch: pytest.MonkeyPatch) -> None:
    found = checked(monkeypatch, Executors(EXECUTOR, replace(EXECUTOR, directory="app-1/1")))

    assert (found.ok, found.problems) == (True, [])
    lines = repr(found).splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["driver", "executor", "executor", "ready"]
    assert lines[0].split() == ["host", "directory", "python", "wakeq", "msgspec", "pyarrow", "numpy", BROKER]


def test_check_names_executor_without_wakeq_and_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    bare = replace(EXECUTOR, versions=WHOLE | {"wakeq": "-", "msgspec": "-"})

    found = checked(monkeypatch, Executors(EXECUTOR, replace(bare, host="node-8")))

    assert found.problems == [
        "executor node-8 (app-1/0) has no wakeq and no msgspec: install it in /usr/bin/python3, or send it with "
        "register(spark, ship=True)"
    ]
    assert not found.ok


def test_check_does_not_advise_to_send_what_cannot_be_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    bare = replace(EXECUTOR, versions=WHOLE | {"pyarrow": "-"})

    (problem,) = checked(monkeypatch, Executors(bare)).problems

    assert problem == "executor node-7 (app-1/0) has no pyarrow: install it in /usr/bin/python3"


def test_check_names_executor_with_another_version(monkeypatch: pytest.MonkeyPatch) -> None:
    (problem,) = checked(monkeypatch, Executors(replace(EXECUTOR, versions=WHOLE | {"wakeq": "0.0.9"}))).problems

    assert "node-7" in problem
    assert "has wakeq 0.0.9, and the driver 0.1.0" in problem


def test_check_names_executor_that_does_not_reach_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    found = checked(monkeypatch, Executors(replace(EXECUTOR, broker={BROKER: "timed out"})))

    assert found.problems == [f"executor node-7 (app-1/0) does not reach the broker at {BROKER}: timed out"]
    assert [line.split()[-1] for line in repr(found).splitlines()[1:3]] == ["reached", "no"]


def test_check_names_driver_and_executor_that_the_broker_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = replace(EXECUTOR, refusal=NO_TOKEN)

    found = checked(monkeypatch, Executors(refused), driver=replace(DRIVER, refusal=NO_TOKEN))

    assert found.problems == [
        f"driver driver cannot log in to the broker: {NO_TOKEN}",
        f"executor node-7 (app-1/0) cannot log in to the broker: {NO_TOKEN}",
    ]
    assert [line.split()[-1] for line in repr(found).splitlines()[1:3]] == ["refused", "refused"]


def test_check_names_driver_that_does_not_reach_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    found = checked(monkeypatch, Executors(EXECUTOR), driver=replace(DRIVER, broker={BROKER: "timed out"}))

    assert found.problems == [f"driver driver does not reach the broker at {BROKER}: timed out"]


def test_check_refuses_loopback_broker_unless_the_master_is_local(monkeypatch: pytest.MonkeyPatch) -> None:
    found = checked(monkeypatch, Executors(EXECUTOR), broker="127.0.0.1:2601")

    (problem,) = found.problems
    assert problem.startswith("127.0.0.1:2601 is another place on each machine, and the master is spark://m:7077")
    assert checked(monkeypatch, Executors(EXECUTOR, master="local[2]"), broker="127.0.0.1:2601").ok


def test_check_of_a_session_without_the_formats_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    executors = Executors(EXECUTOR, why_no_plan="java.lang.ClassNotFoundException: wakeq")

    (problem,) = checked(monkeypatch, executors).problems

    assert problem == (
        "Spark cannot plan format wakeq on the driver: java.lang.ClassNotFoundException: wakeq; call register(spark)"
    )


def test_check_of_a_planner_without_wakeq_says_what_registering_alone_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    executors = Executors(EXECUTOR, why_no_plan="ModuleNotFoundError: No module named 'wakeq'")

    (problem,) = checked(monkeypatch, executors).problems

    assert problem == (
        "Spark cannot plan format wakeq on the driver: ModuleNotFoundError: No module named 'wakeq'; Spark plans with "
        "the Python that PYSPARK_PYTHON names: install wakeq in it, or call register(spark, ship=True)"
    )


def test_check_of_executors_that_run_nothing_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError('x\nCaused by: java.io.IOException: Cannot run program "./environment/bin/python": error=2')

    executors = Executors()
    monkeypatch.setattr(cluster, "_run_everywhere", fail)
    monkeypatch.setattr(cluster, "_probe", lambda broker: lambda hold_s: asdict(DRIVER))
    session: Any = executors

    (problem,) = cluster.check(session, broker=BROKER).problems

    assert 'Cannot run program "./environment/bin/python"' in problem
    assert f"must name a Python {'.'.join(platform.python_version().split('.')[:2])} " in problem


def probed(broker: Broker) -> Place:
    return Place(**cluster._probe(broker)(0.0))


def test_probe_says_what_this_python_has_and_what_the_broker_says(tmp_path: Path) -> None:
    async def probe() -> tuple[str, Place]:
        async with node_here(tmp_path / "data") as here:
            return here.worker, await asyncio.to_thread(probed, Broker(here.worker))

    address, place = run(probe())

    assert (place.broker, place.refusal) == ({address: ""}, "")
    assert place.versions["python"] == platform.python_version()
    assert place.versions["wakeq"] == wakeq.__version__
    gone = probed(Broker(address))
    assert "refused" in gone.broker[address]
    assert gone.refusal == ""


def test_probe_logs_in_with_the_token_that_it_is_given(tmp_path: Path) -> None:
    secret, tokens = "secret", tmp_path / "tokens.json"
    grant = Grant("spark", digest_of(secret).hex(), ("*",), (Right.FETCH,), datetime.now(UTC))
    TokenFile(tokens).change(lambda grants: (*grants, grant))
    (tmp_path / "token").write_text(secret)

    async def probe(*credentials: dict[str, str]) -> list[str]:
        async with node_here(tmp_path / "data", auth=Auth(required=True, tokens_file=tokens)) as here:
            return [(await asyncio.to_thread(probed, Broker(here.worker, **one))).refusal for one in credentials]

    good, file, none, bad = run(
        probe({"token": secret}, {"token_file": str(tmp_path / "token")}, {}, {"token": "wrong"})
    )

    assert (good, file) == ("", "")
    assert "a token is needed here (option token, or tokenFile)" in none
    assert "the token is not valid here" in bad


def test_probe_is_pickled_with_all_that_it_needs(tmp_path: Path) -> None:
    from pyspark import cloudpickle

    (tmp_path / "probe").write_bytes(cloudpickle.dumps(cluster._probe(Broker("127.0.0.1:1"))))
    code = """
import pickle, sys
sys.path.append(sys.argv[2])
sys.modules["wakeq"] = None
print(pickle.load(open(sys.argv[1], "rb"))(0.0)["versions"]["wakeq"])
"""
    pyspark = Path(cloudpickle.__file__).parents[2]

    said = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "probe"), str(pyspark)], capture_output=True, check=True
    )

    assert said.stdout == b"-\n"


def test_shipped_packages_are_enough_for_the_data_source(tmp_path: Path) -> None:
    for name in cluster.SHIPPED:
        with zipfile.ZipFile(cluster._pack(name, tmp_path / f"{name}.zip")) as file:
            file.extractall(tmp_path / "python" / name)
    # Only these directories: an editable installation would be found otherwise.
    kept = [path for path in sys.path if path and Path(path) != Path(__file__).parents[3]]
    code = f"""
import sys
sys.path[:] = [{str(tmp_path / "python")!r}, *{kept!r}]
import wakeq, msgspec, wakeq.pipeline.stream.source, wakeq.pipeline.stream.reader, wakeq.pipeline.stream.sink
import wakeq.pipeline.journal.source
print(wakeq.__file__, msgspec.__file__, wakeq.pipeline.stream.source.__file__)
"""

    said = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True)

    assert all(place.startswith(str(tmp_path)) for place in said.stdout.split())


def test_packages_are_not_shipped_from_another_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    nothing: Any = None

    with pytest.raises(BadSettings, match="runs on darwin"):
        cluster.register(nothing, ship=True)


class Context:
    def __init__(self, master: str, cores: int) -> None:
        self.master, self.defaultParallelism = master, cores
        self.environment = {"PYTHONPATH": "/before"}


class Session:
    """A classic session that keeps what is registered."""

    def __init__(self, master: str = "local[6]", cores: int = 6) -> None:
        self.sparkContext = Context(master, cores)
        self.registered: list[Any] = []

    @property
    def dataSource(self) -> Any:  # noqa: N802
        return self

    def register(self, source: Any) -> None:
        self.registered.append(source)


def registered(session: Any) -> Any:
    cluster.register(session)
    return {source.name(): source for source in session.registered}


def test_register_makes_both_formats_known_and_changes_nothing_else() -> None:
    session = Session()

    assert set(registered(session)) == {"wakeq", "wakeq-journal"}
    assert session.sparkContext.environment == {"PYTHONPATH": "/before"}


@pytest.mark.parametrize(
    ("master", "cores", "parallelism"),
    [("local[6]", 6, 6), ("local[1]", 1, 1), ("yarn", 2, 4), ("yarn", 64, 64), ("yarn", 5000, 1000)],
)
def test_registered_source_is_pickled_with_the_parallelism(master: str, cores: int, parallelism: int) -> None:
    from pyspark import cloudpickle

    source = registered(Session(master, cores))["wakeq"]

    assert cloudpickle.loads(cloudpickle.dumps(source)).parallelism == parallelism
