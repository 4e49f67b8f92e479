"""The pages of docs/reference, made from what the code says of itself, so that they cannot differ from it.

    settings model, click commands, error tree, metrics, routes  -->  settings.md, cli.md, errors.md, ...

`make reference` writes them; a test and `make docs` compare them.  Prints nothing that depends on the machine that it
runs on.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import click
import msgspec

from wakeq.cli.common import (
    EXIT_BROKEN_PIPE,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_NOTHING,
    EXIT_USAGE,
)
from wakeq.cli.entry import cli
from wakeq.config.setting import Setting, shown
from wakeq.config.settings import INT64_MIN, KNOWN
from wakeq.http.api.api import PREFIX, Route
from wakeq.http.api.api import STATUSES as HTTP_STATUSES
from wakeq.http.api.backup import Backup
from wakeq.http.api.events import Events
from wakeq.http.api.journal import Journal
from wakeq.http.api.messages import message_routes
from wakeq.http.api.node import node_routes
from wakeq.http.api.publish import publish_routes
from wakeq.http.api.queues import queue_routes
from wakeq.http.families import ALL_QUEUES, MONIQUE, NODE, QUEUE, Family
from wakeq.protocol import errors

HELP_CHARS = 100  # of a line, whatever the terminal
MADE = "<!-- Made by `make reference` from the code; do not edit. -->"

SETTINGS_INTRO = f"""\
# Settings

{MADE}

A value comes from the last of these that gives it: the default, the TOML file (`--config FILE` or
`WAKEQ_CONFIG`), the environment, the flags of `wakeq serve` (`--set NAME=VALUE` for those without a flag of
their own). `wakeq config show --origin` shows which one it was; `wakeq config check FILE` checks a file
without starting anything. Unknown names, wrong types and values out of range are errors. Bytes may be written
as `64MiB`.
"""

CLI_INTRO = f"""\
# The command line

{MADE}

Results go to standard output, other messages to standard error. An error is one line,
`wakeq: what happened; what to try`, and an [exit status](exit-codes.md). Every command that reads has `--json`,
which prints one value a line; its fields may grow in number but are never renamed. Commands that destroy
something ask first, unless you give `--yes`. There is no colour if the output is not a terminal or `NO_COLOR`
is set. Completion in bash: `source <(wakeq completion bash)`, and likewise for zsh and fish. What follows is
what `--help` prints.
"""

ERRORS_INTRO = f"""\
# Errors

{MADE}

Codes never change once released. The first table lists the values of `err` in a `nok`, which also has a
`detail` for people; the Python client raises the class in the same row (all are `wakeq.WakeqError`). A client
should treat a code that it does not know as `REFUSED`.

## On the wire

| Code | Class | Meaning, and what to do |
| --- | --- | --- |
"""

IN_PROCESS = """
## In the process

| Code | Class | Exit status | Meaning |
| --- | --- | --- | --- |
"""

EXIT_INTRO = f"""\
# Exit codes

{MADE}

They are the same for every command. "Nothing to fetch" has its own status, so that a script can distinguish it from a
refusal: `while wakeq fetch jobs --ack; do :; done; test $? = 3` empties a queue, or fails if it could not.
From 64 on they are those of `sysexits.h`.

| Status | Meaning | Errors |
| --- | --- | --- |
"""

MEANINGS = {
    "INTERNAL": "A fault of the broker itself. Report it, with the broker's log.",
    "REFUSED": "Refused for a reason that has no code of its own; the detail says which.",
    "BAD_JSON": "The line or frame is not a JSON object. Nothing was done; the connection stays open.",
    "BAD_COMMAND": "`cmd` is missing or unknown. Perhaps the client is newer than the broker.",
    "BAD_FIELD": "A field is missing, of the wrong type or out of its range; the detail names it.",
    "BAD_NAME": "A queue's name has bytes outside of 33..126, or more than 255 of them.",
    "TOO_LARGE": "A message, batch or line beyond its limit. Split it, or raise `message_bytes_max`.",
    "Q_NOT_FOUND": "The queue does not exist. Publish to it, or create it.",
    "Q_EXISTS": "CREATE of a queue that exists. Use UPDATE to change it.",
    "QUEUE_FULL": "The queue or the node is at its limit of messages or bytes. Try later, or raise it.",
    "TOO_MANY_QUEUES": "The node has `queues_max` queues, or the token has made `queues_per_token_max`. Drop some, or "
    "raise it.",
    "KEY_RANGE": "The priority is outside of the queue's range (`priority_min`, `priority_max`).",
    "STALE_LEASE": "This lease has ended, and another worker may have the message. Do not repeat the command.",
    "EPOCH_EXPIRED": "The claim of this epoch was not renewed in time, or was released. Stage another one.",
    "EPOCH_SETTLED": "The messages of this epoch were acknowledged. Stage another one.",
    "STASH_EXPIRED": "A stash that was to be published is gone, or has another size. Stash its messages again.",
    "EPOCH_OLD": "The writer has published this epoch or a later one. Give a higher epoch, or another writer.",
    "UNKNOWN_UID": "An ACK with `publish` of a message that is gone, or was never there. Nothing of it was done.",
    "NOT_LEADER": "This node does not serve now; `leader` is the address of the node that does.",
    "NO_QUORUM": "No majority answers this leader in time, or its disk does not. Try another node, or try later.",
    "UNKNOWN": "The change may have been made or not. Repeat it with the same `id` or session number.",
    "BUSY": "Not now: a limit was reached, or the disk does not answer. The same command may succeed later.",
    "SET_ASIDE": "The queue crashed on this command three times and skips it. Report it; `wakeq inspect` says why.",
    "DISK_FULL": "The disk is nearly full. Publishes are refused; acknowledging and deleting still work.",
    "UNAUTHORIZED": "There was no token, or it is unknown, expired or revoked. The connection is closed.",
    "FORBIDDEN": "The token does not carry the right to do this to this queue. The connection stays open.",
    "STORAGE": "The data directory cannot be used or trusted; the message says why, and what to do.",
    "DAMAGED": "A file's marker, version, checksum or content is wrong; the message names the place.",
    "DISOWNED": "The data directory is not the one that joined the cluster, or lacks entries that it has confirmed.",
    "PEER": "The program that answers at a peer's address is not a node of this cluster. Check `cluster.peers`.",
    "DIVERGED": "The leader's log contradicts entries committed here: a majority lost its disks, or there is a bug.",
    "IN_USE": "Another broker holds the data directory; the message names its process.",
    "VERSION": "The data directory is of a release that this one does not read, or of version 1 with `--no-upgrade`.",
    "HISTORY_GONE": "A part of the journal was removed while it was read. Start again, or keep more (`journal`).",
    "SYNC_FAILED": "The disk failed a write. The broker stops, because it could no longer keep its promises.",
    "SETTINGS": "A setting, flag or address is wrong; the message names a correct value.",
    "LISTEN": "A port is in use, or the address is not of this machine (yet). A later start may succeed.",
    "NOT_INSTALLED": "This command needs a package, or Java; the message says which, and how to install it.",
    "SPARK": "A Spark job failed for a reason that wakeq does not know; the message has its first line.",
    "QUERY": "DuckDB could not answer a question of a report; the message has its first line.",
    "ON_EVENT_LOOP": "A blocking call was made on an event loop; the message names the call to await instead.",
    "UNREACHABLE": "No broker answers at the address.",
    "DISCONNECTED": "The connection ended before the answer; the command may or may not have been done.",
}

STATUSES = {
    0: "Done. For `serve`: stopped cleanly.",
    EXIT_FAILED: "The broker refused the command (standard error says why), or you answered no to the question. "
    "For `work` and `run`: a handler or command was cut short, and its message released.",
    EXIT_USAGE: "The command line is wrong.",
    EXIT_NOTHING: "No message: none to fetch, or for `work --once` to handle; "
    "or the message to ack, nack or touch is gone, or not leased.",
    65: "A file of the data directory is damaged; `inspect` and `repair --dry-run` use it to report damage.",
    66: "The data directory is of another release.",
    69: "No broker answers or serves, or the connection ended; or something that the command needs is not installed.",
    70: "The data directory cannot be used or trusted; or a bug ended the broker (standard error says where).",
    71: "A port or address to listen on is not available now.",
    73: "The data directory is in use by another broker.",
    74: "A write or sync failed. For `serve`: the broker stopped; otherwise the output is incomplete.",
    77: "The token is missing or not valid, or does not allow this.",
    78: "A setting is wrong.",
    EXIT_INTERRUPTED: "Ended by Ctrl-C. For `work` and `run`: a second signal, SIGINT, ended it at once.",
    143: "For `serve`, `work` and `run`: a second signal, SIGTERM, ended it at once.",
    EXIT_BROKEN_PIPE: "The program that reads the output stopped reading.",
}

NOBODY = cast(Any, None)  # the tables are only read

METRICS_INTRO = f"""\
# Metrics

{MADE}

The metrics of `GET /metrics`, in the text format of Prometheus. Names never change; new ones are added. Counters of a
queue begin again when it is purged; those of all queues only grow. Only the leader exports the metrics of queues, so
sums over a cluster are right. How to use them: [monitoring](../operations/monitoring.md).
"""

HTTP_INTRO = f"""\
# The HTTP API

{MADE}

JSON over the HTTP port (8080), under `{PREFIX}`. The same as an OpenAPI document: `GET {PREFIX}/openapi.json`. A
body must have `Content-Type: application/json`, even if it is empty (`{{}}`). With tokens, send
`Authorization: Bearer TOKEN`. A refusal is `{{"error": {{"code", "detail"}}}}`, in a cluster with the `leader`'s worker
address if another node leads. Rights: `look` is any right, `read` is fetch or admin, `admin` is admin, for the queue
that is named, or for all queues if none is. How to use it: [operating](../operations/admin.md).

Other paths: `/livez`, `/readyz` (with `?leader`, only the node that serves is ready), [`/metrics`](metrics.md), and the
dashboard at `/`.
"""


def settings_page() -> str:
    """docs/reference/settings.md."""
    return SETTINGS_INTRO + "\n".join(_settings_tables()) + "\n"


def _settings_tables() -> Iterator[str]:
    table = None
    for known in KNOWN.values():
        section, _, name = known.name.rpartition(".")
        if section != table:
            table = section
            yield f"\n## `[{section}]`\n" if section else "\n## The node\n"
            yield "| Name | Default | Unit | Range | Environment | Reload | What it is |"
            yield "| --- | --- | --- | --- | --- | --- | --- |"
        cells = (
            f"`{name}`",
            f"`{shown(known.default, known.unit)}`",
            known.unit or "-",
            _range(known),
            f"`{known.environment_name}`",
            "yes" if known.reloadable else "no",
            known.about,
        )
        yield f"| {' | '.join(cells)} |"


def _range(known: Setting) -> str:
    if known.one_of:
        return ", ".join(f"`{word}`" for word in known.one_of)
    if known.least is None:
        return "-"
    if known.least == INT64_MIN:
        return "Int64"
    words = f", `{known.word}`" if known.word else ""
    return (f"{known.least:,}..{known.most:,}" if known.most is not None else f"from {known.least:,}") + words


def cli_page() -> str:
    """docs/reference/cli.md."""
    return CLI_INTRO + "".join(f"\n## {path}\n\n```text\n{text}\n```\n" for path, text in _helps(cli, "wakeq"))


def _helps(command: click.Command, name: str, above: click.Context | None = None) -> Iterator[tuple[str, str]]:
    """The help of a command and of all below it, as click prints it."""
    context = click.Context(command, above, name, terminal_width=HELP_CHARS, **command.context_settings)
    yield context.command_path, command.get_help(context)
    if isinstance(command, click.Group):
        for name_below in sorted(command.list_commands(context)):
            below = command.get_command(context, name_below)
            assert below is not None, "the group has listed it"
            yield from _helps(below, name_below, context)


def errors_page() -> str:
    """docs/reference/errors.md."""
    wire = [f"| `{code}` | `{kind.__name__}` | {MEANINGS[code]} |\n" for code, kind in errors.BY_CODE.items()]
    others = [
        f"| `{kind.code}` | `{kind.__name__}` | {kind.exit_status} | {MEANINGS[kind.code]} |\n"
        for kind in tree(errors.WakeqError)
        if kind.code not in errors.BY_CODE
    ]
    return ERRORS_INTRO + "".join(wire) + IN_PROCESS + "".join(others)


def exit_codes_page() -> str:
    """docs/reference/exit-codes.md."""
    codes: dict[int, list[str]] = {}
    for kind in tree(errors.WakeqError):
        if kind.exit_status != EXIT_FAILED:
            codes.setdefault(kind.exit_status, []).append(f"[`{kind.code}`](errors.md)")
    rows = [f"| {status} | {text} | {', '.join(codes.get(status, ['-']))} |\n" for status, text in STATUSES.items()]
    return EXIT_INTRO + "".join(rows)


def tree(kind: type[errors.WakeqError]) -> Iterator[type[errors.WakeqError]]:
    """The error and all below it that errors.py declares."""
    if kind.__module__ == errors.__name__:
        yield kind
    for below in kind.__subclasses__():
        yield from tree(below)


def metrics_page() -> str:
    """docs/reference/metrics.md."""
    tables = (("The node", NODE), ("MoniQue", MONIQUE), ("All queues together", ALL_QUEUES), ("Each queue", QUEUE))
    return METRICS_INTRO + "".join(f"\n## {title}\n\n{_metrics(families)}" for title, families in tables)


def _metrics(families: Sequence[Family]) -> str:
    rows = [
        f"| `{name}` | {kind} | {', '.join(f'`{label}`' for label in labels) or '-'} | {about} |"
        for name, kind, about, labels in families
    ]
    return "\n".join(("| Name | Kind | Labels | Meaning |", "| --- | --- | --- | --- |", *rows)) + "\n"


def every_route() -> list[Route]:
    """All routes of the API, for reading only."""
    events, backup = Events(NOBODY, NOBODY, NOBODY), Backup(NOBODY, NOBODY, NOBODY, NOBODY)
    tables = (
        queue_routes(NOBODY, NOBODY), message_routes(NOBODY, NOBODY, NOBODY),
        publish_routes(NOBODY, 0), node_routes(NOBODY, NOBODY, {}),
        events.routes(), backup.routes(), Journal(NOBODY, NOBODY, NOBODY).routes(),
    )  # fmt: skip
    return [route for table in tables for route in table]


def http_page() -> str:
    """docs/reference/http.md."""
    parts = "".join(part for route in every_route() for part in _route(route))
    codes = "".join(f"| {status} | {', '.join(f'`{code}`' for code in _codes(status))} |\n" for status in _statuses())
    return HTTP_INTRO + parts + f"\n## Statuses\n\n| Status | Codes |\n| --- | --- |\n| 200 | - |\n{codes}"


def _statuses() -> list[int]:
    return sorted(set(HTTP_STATUSES.values()))


def _codes(status: int) -> list[str]:
    return [code for code, its in HTTP_STATUSES.items() if its == status]


def _route(route: Route) -> Iterator[str]:
    """One path: what it is for, what it takes."""
    yield f"\n## {route.method} {route.path}\n\n{route.about}. Right: {route.need}."
    if route.streams:
        yield f" Answers with `{route.streams}`."
    if route.has_ranges:
        yield " A range, such as `Range: bytes=0-65535`, is answered with 206, or 416 behind the end."
    yield "\n"
    for title, kind in (("Query", route.query), ("Body", route.body)):
        fields = msgspec.structs.fields(kind) if kind is not None else ()
        if kind is None or not fields:
            continue
        yield f"\n{title}: {' '.join((kind.__doc__ or '').split())}\n\n| Field | Default | |\n| --- | --- | --- |\n"
        schema = msgspec.json.schema(kind)["$defs"][kind.__name__]["properties"]
        for field in fields:
            yield f"| `{field.encode_name}` | {_default(field)} | {_shape(schema[field.encode_name])} |\n"


def _default(field: Any) -> str:
    if field.required:
        return "required"
    value = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
    return f"`{msgspec.json.encode(value).decode()}`"


def _shape(schema: dict[str, Any]) -> str:
    """Say what fits, in a few words."""
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_shape(one) for one in schema["anyOf"]))
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    words = {"integer": "whole number", "array": "array", "null": "null"}
    words |= {"object": "object", "string": "text", "boolean": "true or false"}
    kind = words.get(schema.get("type", ""), str(schema.get("type", "anything")))
    least = schema.get("minimum", schema.get("exclusiveMinimum", schema.get("minLength", schema.get("minItems"))))
    most = schema.get("maximum", schema.get("maxLength", schema.get("maxItems")))
    bounds = (
        f", {'' if least is None else least}..{'' if most is None else most}" if (least, most) != (None, None) else ""
    )
    form = " (RFC 3339)" if schema.get("format") == "date-time" else ""
    of = f" of {_shape(schema['items'])}" if schema.get("items") else ""
    return f"{kind}{form}{of}{bounds}"


def pages() -> dict[str, str]:
    """Every generated page by its file name."""
    return {
        "settings.md": settings_page(),
        "cli.md": cli_page(),
        "errors.md": errors_page(),
        "exit-codes.md": exit_codes_page(),
        "metrics.md": metrics_page(),
        "http.md": http_page(),
    }


def main() -> None:
    """Write the pages into the directory named."""
    folder = Path(sys.argv[1])
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
