"""Which session a verb gets: the one that is there, or a new one where everything else has its say first."""

import os
import signal
import sys
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from wakeq.pipeline import java, spark
from wakeq.pipeline.spark import LOCAL, session_for
from wakeq.protocol.errors import NotInstalled

NAMES = ("MASTER", "SPARK_DRIVER_MEMORY", "PYSPARK_PYTHON")


class Session:
    """A session, with the settings and the environment that it was started with."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self.settings = dict(settings or {})
        self.environment = {name: os.environ.get(name) for name in NAMES}
        self.is_stopped = False

    def stop(self) -> None:
        self.is_stopped = True


class Builder:
    """A builder as that of Spark, for the calls that are made here."""

    def __init__(self) -> None:
        self._settings: dict[str, str] = {}

    def appName(self, name: str) -> "Builder":  # noqa: N802
        return self.config({"spark.app.name": name})

    def config(self, map: Mapping[str, str]) -> "Builder":
        self._settings |= map
        return self

    def getOrCreate(self) -> Session:  # noqa: N802
        return Session(self._settings)


class NoSession(Exception):
    """What Spark raises if it is asked for the active session and has none."""


class SparkModule:
    """The class SparkSession, in a program with this session or without one."""

    def __init__(self) -> None:
        self.there: Session | None = None
        self.builder = Builder()

    def active(self) -> Session:
        if self.there is None:
            raise NoSession
        return self.there


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> SparkModule:
    made = SparkModule()
    monkeypatch.setattr(spark, "_start_java", lambda settings: None)
    monkeypatch.setitem(sys.modules, "pyspark", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "pyspark.sql", SimpleNamespace(SparkSession=made))
    monkeypatch.setitem(sys.modules, "pyspark.errors", SimpleNamespace(PySparkRuntimeError=NoSession))
    monkeypatch.setattr(spark, "check_packages", lambda *names: None)
    monkeypatch.setattr(java, "find_java", lambda: "/a/java")
    for name in (*NAMES, "SPARK_REMOTE", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(name, raising=False)
    return made


def start(**given: Any) -> Session:
    with session_for("a verb", **given) as session:
        found: Any = session
    assert isinstance(found, Session)
    return found


def test_session_that_is_there_is_used_and_neither_changed_nor_ended(program: SparkModule) -> None:
    program.there = Session({"spark.master": "yarn"})

    found = start(conf=[("spark.executor.memory", "4g")])

    assert found is program.there
    assert (found.settings, found.is_stopped) == ({"spark.master": "yarn"}, False)


def test_started_session_is_ended_and_leaves_the_environment_as_it_was(program: SparkModule) -> None:
    before = dict(os.environ)

    found = start()

    assert found.is_stopped
    assert os.environ == before


def test_session_runs_on_this_machine_only_if_nothing_else_names_a_master(
    program: SparkModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing_said = start()
    monkeypatch.setenv("MASTER", "spark://one:7077")
    variable_set = start()

    assert nothing_said.environment["MASTER"] == LOCAL
    assert nothing_said.environment["PYSPARK_PYTHON"] == sys.executable
    assert "spark.master" not in nothing_said.settings, "it would overrule spark-defaults.conf and spark-submit"
    assert variable_set.environment["MASTER"] == "spark://one:7077"


def test_master_and_settings_of_the_command_are_passed_on(program: SparkModule) -> None:
    found = start(master="spark://one:7077", conf=[("spark.log.level", "WARN")])

    assert found.settings["spark.master"] == "spark://one:7077"
    assert found.settings["spark.log.level"] == "WARN"


def test_session_under_spark_submit_gets_neither_master_nor_environment(
    program: SparkModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")

    found = start()

    assert found.settings == {"spark.app.name": "a verb", "spark.sql.session.timeZone": "UTC"}
    assert set(found.environment.values()) == {None}


def test_connect_server_is_used_without_java(program: SparkModule, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_java() -> None:
        raise NotInstalled("there is no Java")

    monkeypatch.setattr(java, "find_java", no_java)

    given = start(master="sc://one")
    monkeypatch.setenv("SPARK_REMOTE", "sc://one")
    from_environment = start()

    assert given.settings["spark.remote"] == "sc://one"
    assert "spark.master" not in from_environment.settings
    monkeypatch.delenv("SPARK_REMOTE")
    with pytest.raises(NotInstalled, match="there is no Java"):
        start()


def test_interrupt_waits_until_the_virtual_machine_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would wait for this program for ever if it learned nothing of it."""
    seen: list[str] = []

    class Conf:
        def setAll(self, settings: list[tuple[str, str]]) -> list[tuple[str, str]]:  # noqa: N802
            return settings

    class Context:
        @staticmethod
        def _ensure_initialized(conf: list[tuple[str, str]]) -> None:
            os.kill(os.getpid(), signal.SIGINT)
            seen.append("started")

    monkeypatch.setitem(sys.modules, "pyspark", SimpleNamespace(SparkConf=Conf, SparkContext=Context))
    before = signal.getsignal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        spark._start_java({"spark.log.level": "ERROR"})

    assert seen == ["started"]
    assert signal.getsignal(signal.SIGINT) is before
