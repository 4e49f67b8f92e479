"""Commands for MoniQue over WebSocket: push, listen, and tester, which does both at a prompt.

Data go to standard output unchanged, and everything else to standard error.  If no address is given, the server is the
one in config.json, if there is one, as in the original programs, else the broker of the other commands.
"""

import shlex
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

import click

from wakeq.cli.common import EXIT_NOTHING, Broker, json_option
from wakeq.cli.output import plain, print_body, print_json, print_line, say
from wakeq.client.monique.blocking import MoniqueClient
from wakeq.client.monique.posts import CREATOR, Post
from wakeq.config.monique import USUAL_PATH, read_config
from wakeq.protocol.errors import BadField, WakeqError
from wakeq.protocol.wire.monique.exchange import ANY
from wakeq.protocol.wire.monique.messages import ENCODINGS, Encoding
from wakeq.protocol.wire.monique.tags import TYPES, Type
from wakeq.protocol.wire.worker.codec import text_of

if TYPE_CHECKING:
    from wakeq.client.monique.aio import AsyncMoniqueClient

PROMPT = "monique> "
HELP = """\
push SPEC TYPE ENCODING FILE    send the content of a file: push example_calculator config JSON calculator.json
subscribe SPEC TYPE             receive such messages; * is any
unsubscribe SPEC TYPE           end that subscription
ping                            measure the time of an answer
help                            show this list
quit                            end"""


@dataclass(frozen=True, slots=True)
class MoniqueServer:
    """The address of the server, and the creator named in messages."""

    address: str
    creator: str

    def connect(self) -> MoniqueClient:
        return MoniqueClient(self.address, creator=self.creator)


@click.group()
@click.option(
    "--address",
    metavar="HOST:PORT",
    help="The address of the server; default: --http or WAKEQ_HTTP, config.json, or port 8080 of the host of --broker.",
)
@click.option(
    "-f",
    "--config-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help=f"MoniQue's config.json, used instead of --http; default: {USUAL_PATH} in this directory, if there is one.",
)
@click.option(
    "--creator", metavar="NAME", default=CREATOR, show_default=True, help="The creator named in the messages."
)
@click.pass_context
def monique(context: click.Context, address: str | None, config_file: Path | None, creator: str) -> None:
    """Use a MoniQue server, wakeq or any other, over WebSocket."""
    broker = context.find_object(Broker)
    assert broker is not None, "the command `wakeq` makes one"
    context.obj = MoniqueServer(address or _address_in(config_file, broker), creator)


def _address_in(config_file: Path | None, broker: Broker) -> str:
    """Return the address in the named config.json, else of --http, else in the usual config.json, else of --broker."""
    if config_file is None and not broker.http and USUAL_PATH.exists():
        config_file = USUAL_PATH
    where = None if config_file is None else read_config(config_file).websocket
    if where is None:
        return broker.http_address
    host = "127.0.0.1" if where.host == "*" else where.host
    return f"ws://{host}:{where.port}/"


@monique.command()
@click.argument("spec")
@click.argument("type", type=click.Choice(sorted(TYPES)))
@click.argument("encoding", type=click.Choice(sorted(ENCODINGS)))
@click.argument("file", type=click.File("rb"))
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(min=0),
    metavar="S",
    help="Wait up to this long for the answer, and print it.",
)
@click.pass_obj
def push(server: MoniqueServer, spec: str, type: Type, encoding: Encoding, file: BinaryIO, wait_s: float | None) -> int:
    """Send the content of FILE as a message and print its id.

    If FILE is -, standard input is read.  With --wait the answer is printed instead of the id; exit status 3 if none
    arrived.
    """
    if wait_s is not None and type != "config":
        raise click.UsageError(f"a {type} gets no answer; --wait is for a config")
    data = file.read()
    with server.connect() as client:
        if wait_s is None:
            print_line(client.push(spec, data, type=type, encoding=encoding).id)
            return 0
        answer = client.ask(spec, data, encoding=encoding, timeout=wait_s)
    if answer is None:
        say(f"no answer arrived within {wait_s:g} s")
        return EXIT_NOTHING
    _show(answer)
    return 0


@monique.command()
@click.argument("spec", default=ANY)
@click.argument("type", default=ANY)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="End after this many messages.")
@click.option(
    "--wait", "wait_s", type=click.FloatRange(min=0), metavar="S", help="End when no message has arrived for this long."
)
@json_option
@click.pass_obj
def listen(server: MoniqueServer, spec: str, type: str, limit: int | None, wait_s: float | None, as_json: bool) -> int:
    """Print messages of SPEC and TYPE as they arrive.

    Each of the two may be *, which stands for any, and is the default.
    """
    received = 0
    with server.connect() as client:
        client.subscribe((spec, type))
        say(f"listening to {spec} {type} at {client.address}")
        while (post := client.receive(wait_s)) is not None:
            _show(post, as_json=as_json)
            received += 1
            if received == limit:
                break
    return 0 if received else EXIT_NOTHING


@monique.command()
@click.pass_obj
def tester(server: MoniqueServer) -> None:
    """Open a prompt to send messages, and print those that arrive.

    Type help for its commands.
    """
    import asyncio

    asyncio.run(_converse(server))


def _show(post: Post, *, as_json: bool = False) -> None:
    """Print the data of a message, and its tag on standard error; as JSON both."""
    try:
        data, encoding = post.message().data, post.message().encoding
    except WakeqError:
        data, encoding = post.packed, None
    if as_json:
        text, enc = text_of(data)
        print_json({"tag": post.tag.text, "encoding": encoding, "data": text, "enc": enc})
        return
    say(post.tag.text + ("" if encoding else "; the message cannot be read, perhaps it is encrypted"))
    print_body(data.rstrip(b"\n") + b"\n")


async def _converse(server: MoniqueServer) -> None:
    """Execute typed lines until the input ends."""
    import asyncio

    from wakeq.client.monique.aio import AsyncMoniqueClient

    async with AsyncMoniqueClient(server.address, creator=server.creator) as client:
        say(f"connected to {client.address}; type help for the commands")
        listening = asyncio.create_task(_print_all(client))
        try:
            while line := await asyncio.to_thread(_read_line):
                if not await _execute(client, line):
                    break
        finally:
            listening.cancel()
            with suppress(asyncio.CancelledError):
                await listening


def _read_line() -> str:
    """Return the next line, empty at the end of the input."""
    if sys.stdin.isatty():
        click.echo(PROMPT, nl=False, err=True)
    return sys.stdin.readline()


async def _print_all(client: "AsyncMoniqueClient") -> None:
    async for post in client.listen():
        _show(post)


async def _execute(client: "AsyncMoniqueClient", line: str) -> bool:
    """Execute one line; return False to end.  An error is printed, and the prompt appears again."""
    try:
        match shlex.split(line):
            case []:
                pass
            case ["quit" | "exit"]:
                return False
            case ["push", spec, type, encoding, file]:
                say(f"pushed {(await _push(client, spec, type, encoding, file)).tag.text}")
            case ["subscribe", spec, type]:
                await client.subscribe((spec, type))
                say(f"subscribed to {spec} {type}")
            case ["unsubscribe", spec, type]:
                await client.unsubscribe((spec, type))
                say(f"unsubscribed from {spec} {type}")
            case ["ping"]:
                say(f"answered after {await client.ping() * 1000:.1f} ms")
            case ["help"]:
                click.echo(HELP, err=True)
            case words:
                say(f"no command {plain(words[0])} takes {len(words) - 1} words; type help for the commands")
    except (WakeqError, ValueError) as error:
        say(str(error))
    return True


async def _push(client: "AsyncMoniqueClient", spec: str, type: str, encoding: str, file: str) -> Post:
    for word, words in ((type, TYPES), (encoding, ENCODINGS)):
        if word not in words:
            raise BadField(f"{word} is not one of {', '.join(sorted(words))}")
    try:
        data = Path(file).read_bytes()
    except OSError as error:
        raise BadField(f"cannot read {file}: {error.strerror}; check the path") from None
    return await client.push(spec, data, type=cast(Type, type), encoding=cast(Encoding, encoding))
