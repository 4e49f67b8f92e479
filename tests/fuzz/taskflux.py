"""Let atheris look for bytes that break the TaskFlux door, until it finds some or is stopped.

    pip install atheris
    python -m tests.fuzz.taskflux [CORPUS_DIR] [-max_total_time=600]

What it finds it writes to a file; `python -m tests.fuzz.taskflux FILE` repeats that.
"""

import sys

try:
    import atheris
except ImportError:
    sys.exit("atheris is not installed; try: pip install atheris")

with atheris.instrument_imports(include=["wakeq.protocol.wire.taskflux"]):
    from tests.helpers.taskflux.fuzz import check_any_bytes

if __name__ == "__main__":
    atheris.Setup(sys.argv, check_any_bytes)
    atheris.Fuzz()
