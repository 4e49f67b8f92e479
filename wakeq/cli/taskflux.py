"""Commands for TaskFlux: enqueue, dequeue, count, create, delete, list, metadata; for any server of that protocol.

Payloads go to standard output unchanged, and everything else to standard error.
"""

import sys
from dataclasses import dataclass

import click

from wakeq.cli.common import EXIT_NOTHING, Broker, confirm, json_option, queue_name, yes_option
from wakeq.cli.output import NO_NAME, print_body, print_facts, print_json, print_table, say
from wakeq.client.taskflux.blocking import TaskFluxClient
from wakeq.client.taskflux.requests import DIALECT_NAMES, IMPLEMENTATIONS
from wakeq.protocol.wire.worker.codec import text_of

KEY = click.IntRange(-(2**63), 2**63 - 1)
LIMIT = click.IntRange(0, 2**31 - 1)


@dataclass(frozen=True, slots=True)
class TaskFluxServer:
    """The address of the server, and its dialect."""

    address: str
    dialect: str

    def connect(self) -> TaskFluxClient:
        return TaskFluxClient(self.address, dialect=self.dialect)


@click.group()
@click.option(
    "--address",
    metavar="HOST:PORT",
    envvar="WAKEQ_TASKFLUX",
    show_envvar=True,
    help="The TaskFlux port of the server, or several, separated by commas; default: port 2602 of the host of "
    "--broker, if the worker port there is 2601.",
)
@click.option(
    "--dialect",
    type=click.Choice(DIALECT_NAMES),
    default="spec",
    show_default=True,
    help="The dialect that the server speaks.",
)
@click.pass_context
def taskflux(context: click.Context, address: str | None, dialect: str) -> None:
    """Use a TaskFlux server, wakeq or any other."""
    broker = context.find_object(Broker)
    assert broker is not None, "the command `wakeq` makes one"
    context.obj = TaskFluxServer(address or broker.taskflux_address, dialect)


@taskflux.command()
@click.argument("queue")
@click.argument("payload", default="-")
@click.option("--key", type=KEY, metavar="N", default=0, help="The lowest is delivered first; default 0.")
@click.pass_obj
def enqueue(server: TaskFluxServer, queue: str, payload: str, key: int) -> None:
    """Store a record in QUEUE.

    Without PAYLOAD, or with -, the payload is read from standard input.  "" is the default queue.
    """
    content = sys.stdin.buffer.read() if payload == "-" else payload.encode(errors="surrogateescape")
    with server.connect() as client:
        client.enqueue(queue, content, key=key)


@taskflux.command()
@click.argument("queue", default="")
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(0, 4_294_967),
    metavar="S",
    default=0,
    help="Wait up to this long for a record.",
)
@click.option("--nack", is_flag=True, help="Release the record once it is printed.")
@click.option("--raw", is_flag=True, help="Print the payload as it is, without adding a newline, to a terminal too.")
@json_option
@click.pass_obj
def dequeue(server: TaskFluxServer, queue: str, wait_s: float, nack: bool, raw: bool, as_json: bool) -> int:
    """Fetch the record with the lowest key and print its payload.

    It is acknowledged once it has been printed.  Exit status 3 if there was nothing.
    """
    with server.connect() as client:
        taking = client.dequeue(queue, wait=wait_s)
        with taking as record:
            if record is None:
                say(f"{queue_name(queue)} has no record now; --wait S waits for one")
                return EXIT_NOTHING
            if as_json:
                payload, encoding = text_of(record.payload)
                facts = {"key": record.key, "id": record.id, "encoding": "base64" if encoding else "text"}
                print_json(facts | {"payload": payload})
                sys.stdout.flush()
            elif raw:
                sys.stdout.buffer.write(record.payload)
                sys.stdout.flush()
            else:
                print_body(record.payload + b"\n")
            if nack:
                taking.give_back()
    return 0


@taskflux.command()
@click.argument("queue", default="")
@click.pass_obj
def count(server: TaskFluxServer, queue: str) -> None:
    """Print the number of records in QUEUE, without leased ones."""
    with server.connect() as client:
        click.echo(client.count(queue))


@taskflux.command()
@click.argument("queue")
@click.option("--implementation", type=click.Choice(list(IMPLEMENTATIONS)), default="H4", show_default=True,
              help="How keys are kept: H4 for any, QA for a small range.")  # fmt: skip
@click.option("--max-size", type=LIMIT, metavar="N", help="The most records it may hold.")
@click.option("--max-payload", type=LIMIT, metavar="BYTES", help="The largest payload it accepts.")
@click.option(
    "--key-range", nargs=2, type=KEY, metavar="MIN MAX", help="The range of keys it accepts; required for QA."
)
@click.pass_obj
def create(
    server: TaskFluxServer,
    queue: str,
    implementation: str,
    max_size: int | None,
    max_payload: int | None,
    key_range: tuple[int, int] | None,
) -> None:
    """Create QUEUE."""
    with server.connect() as client:
        client.create(
            queue, implementation=implementation, max_size=max_size, max_payload=max_payload, key_range=key_range
        )


@taskflux.command()
@click.argument("queue")
@yes_option
@click.pass_obj
def delete(server: TaskFluxServer, queue: str, yes: bool) -> None:
    """Delete QUEUE and its records."""
    confirm(f"Delete {queue_name(queue)} with all of its records?", yes=yes)
    with server.connect() as client:
        client.delete(queue)


@taskflux.command("list")
@json_option
@click.pass_obj
def list_queues(server: TaskFluxServer, as_json: bool) -> None:
    """Show all queues with their sizes and policies."""
    with server.connect() as client:
        queues = client.list()
    rows = [(name, info.count, info.policies) for name, info in sorted(queues.items())]
    if as_json:
        print_json([{"queue": name, "count": size, "policies": policies} for name, size, policies in rows])
    else:
        words = (
            (name or NO_NAME, size, " ".join(f"{key}={value}" for key, value in of.items())) for name, size, of in rows
        )
        print_table(("queue", "count", "policies"), words)


@taskflux.command()
@json_option
@click.pass_obj
def metadata(server: TaskFluxServer, as_json: bool) -> None:
    """Show the nodes of the cluster, and its leader."""
    with server.connect() as client:
        cluster = client.metadata()
    facts = {"addresses": cluster.addresses, "leader": cluster.leader, "answered": cluster.answered}
    if as_json:
        print_json(facts)
    else:
        print_facts(facts)
