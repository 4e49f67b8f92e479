"""find_worker: the Worker that a target on the command line names.

    MODULE:WORKER  -->  import MODULE  -->  its attribute WORKER
    MODULE         -->  import MODULE and, of a package, all modules in it  -->  their Workers, joined into one

A missing module or worker is an error of the command line. An error inside a module while it is imported belongs to the
program: it is shown with the traceback of the program's own frames, and its last line names the module and the place.
A package is searched completely or not at all: a module that cannot be imported ends the search.
"""

import os
import sys
import traceback
from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import TYPE_CHECKING

import click

from wakeq.protocol.errors import WakeqError

if TYPE_CHECKING:
    from wakeq.worker import Worker

# Modules of a package that are programs or tests. They define no tasks, and importing them may do anything.
NOT_SEARCHED = frozenset({"__main__", "conftest", "tests"})
TEST_PREFIX = "test_"


def find_worker(target: str) -> "Worker":
    """Import the worker, from this directory first; raise UsageError if it does not exist."""
    sys.path.insert(0, os.getcwd())
    module_name, colon, name = target.partition(":")
    if not module_name or (colon and not name):
        raise click.UsageError(f"{target} is neither MODULE:WORKER nor MODULE; write it like shop.tasks:worker or shop")
    module = _imported(module_name)
    return _named(module, name) if colon else _joined(module)


def _named(module: ModuleType, name: str) -> "Worker":
    """Return the worker with this name in a module."""
    from wakeq.worker import Worker

    found = getattr(module, name, None)
    if isinstance(found, Worker):
        return found
    others = [f"{module.__name__}:{other}" for other, _ in _workers_of(module)]
    hint = f"did you mean {' or '.join(others)}?" if others else "that module has no Worker"
    what = f"is of type {type(found).__name__}, not a Worker" if found is not None else "does not exist"
    raise click.UsageError(f"{name} of {module.__name__} {what}; {hint}")


def _joined(module: ModuleType) -> "Worker":
    """Return the worker of a module, or of all modules of a package; several are joined into one."""
    from wakeq.worker import Worker

    modules = [module, *_modules_in(module)]
    found = {id(worker): worker for one in modules for _, worker in _workers_of(one)}
    if not found:
        where = f"the {len(modules)} modules of {module.__name__}" if len(modules) > 1 else module.__name__
        raise click.UsageError(f"there is no Worker in {where}; write `worker = Worker()` in one of its modules")
    return Worker.joined(list(found.values()))


def _modules_in(package: ModuleType) -> Iterator[ModuleType]:
    """Import and yield all modules in a package, and in its packages; a module that is no package has none."""
    for found in iter_modules(getattr(package, "__path__", ()), f"{package.__name__}."):
        last = found.name.rpartition(".")[2]
        if last not in NOT_SEARCHED and not last.startswith(TEST_PREFIX):
            module = _imported(found.name)
            yield module
            yield from _modules_in(module)


def _workers_of(module: ModuleType) -> "list[tuple[str, Worker]]":
    from wakeq.worker import Worker

    return [(name, value) for name, value in vars(module).items() if isinstance(value, Worker)]


def _imported(name: str) -> ModuleType:
    """Import a module; raise UsageError if it does not exist, or if it fails."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        # Otherwise the module exists, and imports another one that does not.
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            hint = f"; write {name.removesuffix('.py').replace('/', '.')}" if name.endswith(".py") else ""
            raise click.UsageError(
                f"there is no module {name} in {os.getcwd()}, and none is installed{hint}"
            ) from error
        raise _unusable(name, error) from error
    except WakeqError:
        raise
    except Exception as error:
        raise _unusable(name, error) from error


def _unusable(name: str, error: Exception) -> click.UsageError:
    """Print the traceback of the program's own frames; return the error for the command line."""
    frames = error.__traceback__
    while frames is not None and (
        frames.tb_frame.f_code.co_filename == __file__ or "importlib" in frames.tb_frame.f_code.co_filename
    ):
        frames = frames.tb_next
    traceback.print_exception(error.with_traceback(frames))
    # The text of a SyntaxError names the place already.
    last = traceback.extract_tb(frames)[-1:] if not isinstance(error, SyntaxError) else []
    place = f" ({last[0].filename}:{last[0].lineno})" if last else ""
    return click.UsageError(f"{name} cannot be imported: {type(error).__name__}: {error}{place}")
