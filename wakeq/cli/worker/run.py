"""`wakeq run`: find the Worker that a program has made, and run it.

    MODULE:WORKER  -->  import  -->  Worker.run() or, with --reload, a Reloader around it  -->  exit status

That there is no such module or worker is a mistake of the command line.  What goes wrong inside of the module while it
is imported is the program's own, and shown with the traceback of its own lines.
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
@click.option("--drain", is_flag=True, help="End when its queues have nothing due.")
@click.option(
    "--reload", is_flag=True, help="Start again when a Python file under the current directory changes (wakeq[reload])."
)
@log_options
@click.pass_obj
def run(
    broker: Broker, target: str, concurrency: int | None, drain: bool, reload: bool, log_level: str, log_json: bool
) -> int:
    """Run the Worker called WORKER in the Python module MODULE.

    Modules are looked for in the current directory first.  A Worker created without a broker's address uses --broker.

    It runs until SIGTERM or SIGINT.  The first signal lets running handlers finish within the worker's grace time; a
    second one ends them at once.  With --reload a changed file does what the first signal does, and then the worker
    starts again.  With --drain it ends by itself, as a cron job should: when no queue has anything due and all fetched
    messages are settled.

    Exit status 0 if all handlers had finished, 1 if some were cut short, 130 or 143 after a second signal, 69 if there
    is no broker.
    """
    if drain and reload:
        raise click.UsageError("--drain and --reload contradict each other; give one of them")
    os.environ["WAKEQ_BROKER"] = broker.address
    if reload:
        from wakeq.cli.worker.reload import Reloader

        flags = ["--log-level", log_level, *(["--log-json"] if log_json else [])]
        if concurrency is not None:
            flags += ["--concurrency", str(concurrency)]
        # -B keeps nothing compiled: Python would take it for that of a change of the same size in the same second.
        return Reloader([sys.executable, "-B", "-m", "wakeq", "run", target, *flags], os.getcwd()).run()
    worker = find_worker(target)
    log = partial(log_to_stderr, log_level, as_json=log_json)
    log()  # after the import, for the program may set up its own
    worker.process_set_up = log
    if concurrency is not None:
        worker.concurrency = concurrency
    worker.run(drain=drain)
    return 0


def find_worker(target: str) -> "Worker":
    """Import it, from this directory first.  UsageError if there is no such thing."""
    from wakeq.worker import Worker

    sys.path.insert(0, os.getcwd())
    module_name, colon, name = target.partition(":")
    if not (module_name and colon and name):
        raise click.UsageError(f"{target} is not MODULE:WORKER; write it like shop.tasks:worker")
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise _unusable(module_name, error) from error  # it is there, and imports something that is not
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
    """Show where in the user's modules it failed, without the frames that led there; return what to say of it."""
    frames = error.__traceback__
    while frames is not None and (
        frames.tb_frame.f_code.co_filename == __file__ or "importlib" in frames.tb_frame.f_code.co_filename
    ):
        frames = frames.tb_next
    traceback.print_exception(error.with_traceback(frames))
    return click.UsageError(f"{module_name} cannot be imported: {type(error).__name__}: {error}")
