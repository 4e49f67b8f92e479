"""StandaloneCluster: a master and two workers of Spark, each a process of its own, on two loopback addresses.

    folder --> start --> `spark://127.0.0.1:PORT` --> programs that run on it --> close

Executors are started by the workers, in work directories below the folder, with one core and 512 MB each.  No process
stays behind: all of them are in the process groups that `close` kills, and the kernel kills the master and the workers
when this process dies; an executor ends when its worker has gone.
"""

import os
import re
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.helpers.brokers.process import die_with_parent
from tests.helpers.network.ports import free_ports
from tests.helpers.programs.started import eventually
from wakeq.pipeline.java import find_java

HOSTS = ("127.0.0.1", "127.0.0.2")
CORES = 1
MEMORY = "512m"
START_S = 120.0
REGISTERED = "Registering worker 127"
# A program must not be told by the environment of the tests what Spark it is.
OWN_VARIABLES = re.compile(r"^(SPARK|PYSPARK|WAKEQ|PYTHON|JAVA)_?")
# Half of the time of a short program is that of the second compiler of Java, and of a collector with many threads.
SMALL_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# Of each application: a core on each host, as soon as both are there.
DEFAULTS = f"""\
spark.executor.cores {CORES}
spark.cores.max {CORES * len(HOSTS)}
spark.executor.memory {MEMORY}
spark.scheduler.minRegisteredResourcesRatio 1.0
spark.scheduler.maxRegisteredResourcesWaitingTime 120s
spark.driver.host {HOSTS[0]}
spark.driver.memory 1g
spark.driver.extraJavaOptions {SMALL_JAVA}
spark.executor.extraJavaOptions {SMALL_JAVA}
spark.ui.enabled false
spark.ui.showConsoleProgress false
spark.sql.shuffle.partitions 2
"""
# A program of the cluster with this in its environment finds Spark by SPARK_HOME, as everywhere else.
KEEPS_HOME = "KEEPS_SPARK_HOME"
# With SPARK_HOME, Python imports Spark from a zip, which takes three times as long; what builds commands needs it.
JAVA = """\
#!/bin/sh
case "$KEEPS_SPARK_HOME$*" in
  yes*) ;;
  *org.apache.spark.launcher.Main*) ;;
  *) unset SPARK_HOME ;;
esac
exec "{java}" "$@"
"""
LOG = """\
rootLogger.level = info
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss.SSS} %p %c{1}: %m%n%ex
"""


class StandaloneCluster:
    """One master and a worker on each host."""

    def __init__(self, folder: Path) -> None:
        import pyspark

        self.folder = folder
        # Its jars, and the programs that start it.
        self.spark_home = Path(pyspark.__file__).parent
        java = find_java()
        assert java is not None, "the fixture `needs_spark` sees to it that there is one"
        self._java = java
        # Where `bin/java` is, for everything that starts a Java.
        self.java_home = folder / "java"
        self.url = ""
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> Self:
        """Return when both workers are known to the master."""
        program = self.java_home / "bin" / "java"
        program.parent.mkdir(parents=True)
        program.write_text(JAVA.replace("{java}", str(self._java)))
        program.chmod(0o700)
        (self.folder / "log4j2.properties").write_text(LOG)
        (self.folder / "spark-defaults.conf").write_text(DEFAULTS)
        port, *others = free_ports(1 + len(HOSTS))
        self.url = f"spark://{HOSTS[0]}:{port}"
        self._launch("master", HOSTS[0], "master.Master", "--port", str(port))
        for place, host in enumerate(HOSTS):
            own = ("--port", str(others[place]), "--work-dir", str(self.folder / f"work-{place}"))
            self._launch(f"worker-{place}", host, "worker.Worker", *own, "--cores", "2", "--memory", "2g", self.url)
        eventually(self._is_whole, "both workers are registered\n" + str(self.folder), START_S)
        return self

    def _is_whole(self) -> bool:
        assert all(process.poll() is None for process in self._processes), f"see the logs in {self.folder}"
        return self.log("master").count(REGISTERED) == len(HOSTS)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def _launch(self, name: str, host: str, main: str, *arguments: str) -> None:
        command = [str(self._java), "-cp", f"{self.spark_home}/jars/*", "-Xmx256m", *SMALL_JAVA.split()]
        command += [f"-Dlog4j2.configurationFile=file:{self.folder}/log4j2.properties"]
        command += [f"org.apache.spark.deploy.{main}", "--host", host, "--webui-port", "0", *arguments]
        with (self.folder / f"{name}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=self.environment() | {"SPARK_LOCAL_IP": host},
                    start_new_session=True,
                    preexec_fn=die_with_parent,
                )
            )

    def environment(self) -> dict[str, str]:
        """Return the environment of every program of the cluster, and of every driver."""
        kept = {name: value for name, value in os.environ.items() if not OWN_VARIABLES.match(name)}
        (core,) = self.spark_home.glob("jars/spark-core_*.jar")
        # The workers look for a build of Spark from source unless they are told the version of Scala.
        scala = core.name.split("_")[1].split("-")[0]
        own = {"SPARK_HOME": str(self.spark_home), "SPARK_SCALA_VERSION": scala, "JAVA_HOME": str(self.java_home)}
        own |= {"SPARK_CONF_DIR": str(self.folder), "SPARK_LOCAL_IP": HOSTS[0]}
        return kept | own

    def close(self) -> None:
        for process in self._processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
