"""Pythons of executors: environments of their own that share packages with this one, by links.

    folder, names of packages --> a Python that has these packages and no others --> the path of its program

Nothing is downloaded, and nothing is copied: PyArrow alone has 170 MB.
"""

import importlib.util
import sys
import venv
from pathlib import Path
from shutil import copy

# A Python that Spark can use at all, and Arrow, as every installation of Spark for data frames in Python has them.
OF_SPARK = ("pyspark", "py4j", "pyarrow", "numpy", "numpy.libs")
# What `pip install 'wakeq[journal]'` installs: executors have PySpark from Spark.
OF_JOURNAL = ("wakeq", "msgspec", "pyarrow", "numpy", "numpy.libs")
OF_WAKEQ = ("wakeq", "msgspec")
# What pip installs with PySpark beside the Python.
PROGRAMS_OF_SPARK = ("spark-submit", "find-spark-home", "load-spark-env.sh")


def make_python(folder: Path, *packages: str) -> Path:
    """Make an environment with these packages of ours; return its program."""
    venv.create(folder, with_pip=False, symlinks=True)
    (target,) = folder.glob("lib/python*/site-packages")
    if "pyspark" in packages:
        _add_programs(folder / "bin")
    for name in packages:
        source = _place_of(name)
        if source.exists():
            (target / name).symlink_to(source)
    return folder / "bin" / "python"


def _add_programs(target: Path) -> None:
    """Copy the programs: each looks for the others where it lies itself, and one names its Python."""
    for name in PROGRAMS_OF_SPARK:
        copy(Path(sys.executable).parent / name, target / name)
    program = target / "find_spark_home.py"
    found = (Path(sys.executable).parent / program.name).read_text().partition("\n")[2]
    program.write_text(f"#!{target}/python\n{found}")
    program.chmod(0o700)


def _place_of(name: str) -> Path:
    found = importlib.util.find_spec(name.removesuffix(".libs"))
    assert found is not None, f"{name} is not installed"
    assert found.origin is not None
    place = Path(found.origin).parent
    return place.with_name(name) if name.endswith(".libs") else place
