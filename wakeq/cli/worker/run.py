"""`wakeq run`: imports the Worker of a program and runs it.

    MODULE:WORKER  -->  import  -->  Worker.run() or, with --reload, a Reloader around it  -->  exit status

A missing module or worker is an error of the command line.  An error inside the module while it is imported belongs to
the program, and is shown with the traceback of the program's own frames.
"""

import os
import sys
import traceback
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

import click

from wakeq.cli.common import Broker
from wakeq.cli.worker.logs import log_options, log_to_stderr
from wakeq.protocol.errors import WakeqError

if TYPE_CHECKING:
    from wakeq.worker import Worker


@click.command()
@click.argument("target", metavar="MODULE:WORKER")
@click.option(
    "--concurrency",
    type=click.IntRange(min=1),
    metavar="N",
    help="Handlers at once; default: the worker's own setting.",
)
@click.option("--drain", is_flag=True, help="End when its queues have no message that is due.")
@click.option(
    "--reload", is_flag=True, help="Restart when a Python file under the current directory changes (wakeq[reload])."
)
@log_options
@click.pass_obj
def run(
    broker: Broker, target: str, concurrency: int | None, drain: bool, reload: bool, log_level: str, log_json: bool
) -> int:
    """Run the Worker called WORKER in the Python module MODULE.

    Modules are searched in the current directory first.  A Worker created without a broker's address uses --broker.

    It runs until SIGTERM or SIGINT.  The first signal lets running handlers finish within the worker's grace time; a
    second one ends them at once.  With --reload, a changed file does what the first signal does, and then the worker
    restarts.  With --drain it ends by itself, as a cron job should: when no queue has a message that is due and every
    fetched message has been processed.

    Exit status 0 if all handlers finished, 1 if some were cut short, 130 or 143 after a second signal, 69 if no broker
    answers.
    """
    if drain and reload:
        raise click.UsageError("--drain and --reload contradict each other; give one of them")
    os.environ["WAKEQ_BROKER"] = broker.address
    if reload:
        from wakeq.cli.worker.reload import Reloader

        flags = ["--log-level", log_level, *(["--log-json"] if log_json else [])]
        if concurrency is not None:
            flags += ["--concurrency", str(concurrency)]
        # -B writes no compiled files: Python would use a stale one after a change of the same size in the same second.
        return Reloader([sys.executable, "-B", "-m", "wakeq", "run", target, *flags], os.getcwd()).run()
    worker = find_worker(target)
    log = partial(log_to_stderr, log_level, as_json=log_json)
    # After the import, because the program may have configured logging itself.
    log()
    worker.process_set_up = log
    if concurrency is not None:
        worker.concurrency = concurrency
    worker.run(drain=drain)
    return 0


def find_worker(target: str) -> "Worker":
    """Import the worker, from this directory first; raise UsageError if it does not exist."""
    from wakeq.worker import Worker

    sys.path.insert(0, os.getcwd())
    module_name, colon, name = target.partition(":")
    if not (module_name and colon and name):
        raise click.UsageError(f"{target} is not MODULE:WORKER; write it like shop.tasks:worker")
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            # The module exists, but imports another one that does not.
            raise _unusable(module_name, error) from error
        raise click.UsageError(f"there is no module {module_name} in {os.getcwd()}, and none is installed") from error
    except WakeqError:
        raise
    except Exception as error:
        raise _unusable(module_name, error) from error
    found = getattr(module, name, None)
    if isinstance(found, Worker):
        return found
    others = [f"{module_name}:{key}" for key, value in vars(module).items() if isinstance(value, Worker)]
    hint = f"did you mean {' or '.join(others)}?" if others else "that module has no Worker"
    what = f"is of type {type(found).__name__}, not a Worker" if found is not None else "does not exist"
    raise click.UsageError(f"{name} of {module_name} {what}; {hint}")


def _unusable(module_name: str, error: Exception) -> click.UsageError:
    """Print the traceback of the user's own frames; return the error for the command line."""
    frames = error.__traceback__
    while frames is not None and (
        frames.tb_frame.f_code.co_filename == __file__ or "importlib" in frames.tb_frame.f_code.co_filename
    ):
        frames = frames.tb_next
    traceback.print_exception(error.with_traceback(frames))
    return click.UsageError(f"{module_name} cannot be imported: {type(error).__name__}: {error}")
