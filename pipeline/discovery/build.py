"""BuildPy: has the modules of this folder stand beside the package wakeq, wherever that is installed.

Spark finds a data source by itself only in a top-level module named `pyspark_...`.  An editable install puts just one
folder of the repository on the path, so these modules are copied next to its path file, as a wheel copies them next to
the package.  Only setuptools imports this module, while it builds (pyproject.toml).
"""

from pathlib import Path
from shutil import copy

from setuptools.command.build_py import build_py


class BuildPy(build_py):
    """Build the package and Spark's modules."""

    def run(self) -> None:
        super().run()
        target = self.get_finalized_command("install").install_lib if self.editable_mode else self.build_lib
        for module in Path(__file__).parent.glob("pyspark_*.py"):
            copy(module, target)
