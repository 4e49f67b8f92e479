"""Why a command of the worker protocol is refused: in words that name the field and its limit.

One line or frame that did not decode together with others goes in; a command (it had unknown fields, say)
or a Bad comes out.  Must never raise, go deeper than DEPTH_MAX, or quote a peer's text
unescaped or at length.
"""

import re
from functools import cache
from typing import Any, cast

import msgspec
from msgspec import UNSET, Struct, UnsetType

from wakeq.protocol.access import TOKEN_CHARS_MAX
from wakeq.protocol.errors import BadCommand, BadField, BadJson, NotSpoken, Refused
from wakeq.protocol.wire.worker.checks import CHECKS
from wakeq.protocol.wire.worker.commands import (
    BLOCK_ROWS_MAX,
    CMD_ID_CHARS_MAX,
    COMMANDS,
    COUNT_MAX,
    EXPIRES_S_MAX,
    FOLLOWUPS_MAX,
    HEADERS_MAX,
    ID_CHARS_MAX,
    KEEP_S_MAX,
    MESSAGES_MAX,
    PEEK_COUNT_MAX,
    SECONDS_MAX,
    SESSION_CHARS_MAX,
    SLICES_MAX,
    STASH_PARTS_MAX,
    STASHES_MAX,
    TIMEOUT_S_MIN,
    UID_CHARS_MAX,
    UIDS_MAX,
    WAIT_S_MAX,
    Command,
    CommandBase,
    CommandId,
    Fet,
    Followup,
    Hello,
    Item,
    Peek,
    Policies,
    Recurring,
    Renew,
    Retry,
    Stage,
)
from wakeq.protocol.wire.worker.identity import FIELDS as IDENTITY_FIELDS
from wakeq.protocol.wire.worker.identity import without_misfits

DEPTH_MAX = 32
_SPACE = (" \t\r\n", b" \t\r\n")  # that JSON allows before an object
_HTTP_END_BYTES = len(" HTTP/1.1\r")
SHOWN_CHARS_MAX = 40
LONG_BYTES = 64 * 1024  # of a line beyond it nothing is made but the fields of its command
LARGE_BYTES = 2 * LONG_BYTES  # headers of 16 KiB have 96 if all of it is escaped
VALUES_MAX = 100_000  # more than any command has


class Bad(Struct, frozen=True, gc=False):
    """A command that cannot be obeyed.  It keeps its place among the others, so that its `nok` does too."""

    error: Refused
    cmd_id: CommandId = UNSET


_MISSING = re.compile(r"Object missing required field `(\w+)`(?: - at `\$\.(.+)`)?")
_WRONG = re.compile(r"(.*) - at `(?:key in )?\$\.(.+)`", re.DOTALL)
_GOT = re.compile(r", got `(\w+)`")
_WORDS = {
    "int": "a whole number",
    "float": "a number with a decimal point",
    "str": "text",
    "bool": "true or false",
    "null": "null",
    "array": "a list",
    "object": "an object",
}

_INT64 = "a whole number of 64 bits with sign"
_TEXT = "text"
_WHOLE_TIMEOUT = f"a whole number of seconds from {TIMEOUT_S_MIN} to {SECONDS_MAX}"
_DELAY = f"a number of seconds from 0 to {SECONDS_MAX}"
_SIZE = f"a whole number from 0 to {2**63 - 1}"
_LEASE = f"text of 1 to {UID_CHARS_MAX} characters"
_BOOLEAN = "true or false"
_STAGED = f"text of 1 to {ID_CHARS_MAX} characters"
_HEADERS = f"an object of at most {HEADERS_MAX} texts"
MUST_BE = {
    "cmd_id": f"text of at most {CMD_ID_CHARS_MAX} characters, a number of 64 bits, true, false or null",
    "qname": _TEXT,
    "message": _TEXT,
    "msg": _TEXT,
    "messages": f"a list of 1 to {MESSAGES_MAX} messages, each of them text or an object",
    "timeout": f"a number of seconds from {TIMEOUT_S_MIN} to {SECONDS_MAX}",
    "delay": _DELAY,
    "expires": f"a number of seconds from 0 (never) to {EXPIRES_S_MAX}",
    "priority": _INT64,
    "priority_min": _INT64,
    "priority_max": _INT64,
    "id": f"text of 1 to {ID_CHARS_MAX} characters",
    "n": f"a whole number from 1 to {2**63 - 1}",
    "headers": _HEADERS,
    "enc": '"b64" or left out',
    "wait": f"a number of seconds from 0 to {WAIT_S_MAX}",
    "uid": _LEASE,
    "uids": f"a list of 1 to {UIDS_MAX} texts of 1 to {UID_CHARS_MAX} characters",
    "leases": f"a list of at most {UIDS_MAX} texts of 1 to {UID_CHARS_MAX} characters, or null",
    "publish": f"a list of 1 to {FOLLOWUPS_MAX} objects",
    "error": _TEXT,
    "failed": _BOOLEAN,
    "dead": _BOOLEAN,
    "exhausted": _BOOLEAN,
    "session": f"text of 1 to {SESSION_CHARS_MAX} characters",
    "token": f"text of 1 to {TOKEN_CHARS_MAX} characters",
    "max_size": _SIZE,
    "max_bytes": _SIZE,
    "max_deliveries": _SIZE,
    "max_message_size": f"a whole number from 1 to {2**63 - 1}",
    "structure": '"H4" or "QA"',
    "dead_letter": _TEXT,
    "retry": "an object with backoff, base, max and jitter",
    "backoff": '"fixed" or "exponential"',
    "base": f"a number of seconds from 0 to {SECONDS_MAX}",
    "max": f"a number of seconds from 0 to {SECONDS_MAX}",
    "jitter": "a number from 0 to 1",
    "on_disconnect": '"keep" or "release"',
    "prefix": _TEXT,
    "state": '"ready", "delayed", "leased" or "any"',
    "rows": f"a whole number from 1 to {BLOCK_ROWS_MAX}",
    "columns": "a list of names of columns",
    "block": "base64 (RFC 4648, with padding)",
    "after": _SIZE,
    "last": _SIZE,
    "source": _STAGED,
    "stash": _STAGED,
    "writer": _STAGED,
    "reader": _STAGED,
    "run": _STAGED,
    "batch": f"a whole number from 1 to {2**63 - 1}",
    "drop": _BOOLEAN,
    "stashes": f"a list of at most {STASHES_MAX} pairs, each the name of a stash and its size",
    "epoch": f"a whole number from 1 to {2**63 - 1}",
    "slices": f"a whole number from 1 to {SLICES_MAX}",
    "slice": _SIZE,
    "offset": _SIZE,
    "part": f"a whole number from 0 to {STASH_PARTS_MAX - 1}; put more messages into each, or begin another stash",
    "keep": f"a number of seconds from {TIMEOUT_S_MIN} to {KEEP_S_MAX}",
    "raw": _BOOLEAN,
}
_LEASE_MODE = '"fast" or "strict"'
_WAKE_POLICY = '"all", "ready" or "sleeper"'
_WAKE_OF_SLEEPER = '"all" or "ready"'

_FIELDS = {name: frozenset(kind.__struct_fields__) for name, kind in COMMANDS.items()}
_ITEM_FIELDS = frozenset(Item.__struct_fields__)
_FOLLOWUP_FIELDS = frozenset(Followup.__struct_fields__)
_RETRY_FIELDS = frozenset(Retry.__struct_fields__)
_RECURRING_FIELDS = frozenset(Recurring.__struct_fields__)


class _Head(Struct, gc=False):
    cmd: msgspec.Raw | UnsetType = UNSET
    cmd_id: msgspec.Raw | UnsetType = UNSET


_HEADS = msgspec.json.Decoder(_Head)
_INNER: dict[str, tuple[type[Struct], int | None]] = {  # fields that hold objects, and how many of them
    "messages": (Item, MESSAGES_MAX),
    "publish": (Followup, FOLLOWUPS_MAX),
    "retry": (Retry, None),
}
_LISTS = frozenset({"messages", "publish", "uids", "leases", "stashes"})  # may be long


def decode_alone(line: bytes | str) -> Command | Bad:
    """Decode one object that did not decode together with others: obey it after all, or say why not."""
    if not is_object(line):
        return _no_object(line)
    if len(line) > LONG_BYTES:
        return _decode_long(line)
    try:
        given = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        return Bad(BadJson(_why_not_json(error)))
    if not isinstance(given, dict):
        return Bad(BadJson("a command is a JSON object"))
    if _is_deeper(given, DEPTH_MAX):
        return Bad(BadJson(f"the object is nested deeper than {DEPTH_MAX}"))
    return _decode_object(given)


def is_object(line: bytes | str) -> bool:
    """Whether a line begins like a JSON object: nothing else is worth parsing."""
    return line.lstrip(_SPACE[1])[:1] == b"{" if isinstance(line, bytes) else line.lstrip(_SPACE[0])[:1] == "{"


def may_be_crowded(line: bytes | str) -> bool:
    """Whether a line may hold so many values that even to decode it as a command takes long: it is trimmed first."""
    return len(line) > LONG_BYTES and (line.count(b",") if isinstance(line, bytes) else line.count(",")) > VALUES_MAX


def _decode_long(line: bytes | str) -> Command | Bad:
    """Decode a long line, and make nothing of what is no field of its command: to skip a value takes little."""
    kind: type[CommandBase] | None = None
    cmd_id: CommandId = UNSET
    try:
        head = _HEADS.decode(line)
        cmd_id, name = _cmd_id({"cmd_id": _small(head.cmd_id)}), _small(head.cmd)
        kind = COMMANDS.get(name) if isinstance(name, str) else None
        if kind is None:
            return Bad(BadCommand(_why_no_command({} if head.cmd is UNSET else {"cmd": name})), cmd_id)
        known = _raw_decoder(kind, None).decode(line)
        for key in kind.__struct_fields__:
            value = getattr(known, key)
            if value is UNSET:
                continue
            if kind is Hello and key in IDENTITY_FIELDS and len(value) > LARGE_BYTES:
                setattr(known, key, UNSET)
            elif key in _INNER and bytes(memoryview(value)[:1]) == (b"{" if key == "retry" else b"["):
                setattr(known, key, _known_inside(key, value))
            elif key not in _LISTS and _is_large(value):
                return Bad(BadField(f"{key} must be {MUST_BE.get(key, 'of another type')}"), cmd_id)
        if kind is Hello:
            return _decode_object(msgspec.json.decode(msgspec.json.encode(known)))
        command = _typed_decoder(kind).decode(msgspec.json.encode(known))
        return cast(Command, CHECKS.get(kind, _as_it_is)(command))
    except msgspec.ValidationError as error:
        return Bad(BadField(_why_bad_field(str(error), kind or CommandBase)), cmd_id)
    except Refused as error:
        return Bad(error, cmd_id)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        return Bad(BadJson(_why_not_json(error)))


def _known_inside(key: str, value: msgspec.Raw) -> msgspec.Raw:
    """Return the objects that a field holds without their unknown fields."""
    inner, max_count = _INNER[key]
    try:
        given = _raw_decoder(inner, max_count).decode(value)
    except msgspec.ValidationError as error:  # it knows the place in the field, and not the field
        raise msgspec.ValidationError(str(error).replace("`$", f"`$.{key}")) from None
    for place, item in enumerate(given if isinstance(given, list) else ()):
        if not isinstance(item, str) and item.headers is not UNSET and _is_large(item.headers):
            raise BadField(f"{key}[{place}].headers must be {_HEADERS}")
    if isinstance(given, list) and len(given) > cast(int, max_count):
        raise BadField(f"{key} must be {MUST_BE[key]}")
    return msgspec.Raw(msgspec.json.encode(given))


@cache
def _raw_decoder(kind: type[Struct], max_count: int | None) -> "msgspec.json.Decoder[Any]":
    """Return what reads the fields of a struct as they stand and skips all others; of several of them, or texts."""
    names = kind.__struct_fields__ if max_count is not None or kind is Retry else ("cmd", *kind.__struct_fields__)
    namespace = {"__post_init__": _refuse_empty} if max_count is not None else {}
    fields = [(name, msgspec.Raw | UnsetType, UNSET) for name in names]
    raw = msgspec.defstruct(f"Raw{kind.__name__}", fields, namespace=namespace, gc=False)
    if max_count is None:
        return msgspec.json.Decoder(raw)
    return msgspec.json.Decoder(list[str | raw] if kind is Item else list[raw])  # type: ignore[valid-type]


def _refuse_empty(item: Any) -> None:
    """Refuse a message without a body at once: millions of them fit into a line."""
    if item.message is UNSET and item.msg is UNSET:
        raise ValueError("Object missing required field `message`")


@cache
def _typed_decoder(kind: type[CommandBase]) -> "msgspec.json.Decoder[CommandBase]":
    return msgspec.json.Decoder(kind)


def _small(raw: msgspec.Raw | UnsetType) -> Any:
    """Return a value that may be part of an answer; UNSET if it is none, or too long for that."""
    return UNSET if raw is UNSET or len(raw) > LONG_BYTES else msgspec.json.decode(raw)


def _is_large(raw: msgspec.Raw) -> bool:
    """Whether this is a list or an object that is longer than any single field, however its texts are escaped."""
    return len(raw) > LARGE_BYTES and bytes(memoryview(raw)[:1]) in (b"[", b"{")


def _no_object(line: bytes | str) -> Bad:
    """Refuse a line without parsing it; that of a request by HTTP also ends the connection."""
    end = line[-_HTTP_END_BYTES:]
    if " HTTP/" in (end if isinstance(end, str) else end.decode("latin-1")):
        return Bad(NotSpoken("this port does not speak HTTP; it accepts JSON objects, one per line"))
    return Bad(BadJson("not a JSON object; every command is one"))


def _decode_object(given: dict[str, Any]) -> Command | Bad:
    cmd_id = _cmd_id(given)
    name = given.get("cmd")
    kind = COMMANDS.get(name) if isinstance(name, str) else None
    if kind is None:
        return Bad(BadCommand(_why_no_command(given)), cmd_id)
    known = _only_known(given, _FIELDS[cast(str, name)])
    if kind is Hello:
        known = without_misfits(known)
    try:
        command = msgspec.convert(known | {"cmd": name}, kind)
        return cast(Command, CHECKS.get(kind, _as_it_is)(command))
    except msgspec.ValidationError as error:
        return Bad(BadField(_why_bad_field(str(error), kind)), cmd_id)
    except Refused as error:
        return Bad(error, cmd_id)


def _as_it_is(command: Any) -> Any:
    return command


def _only_known(given: dict[str, Any], fields: frozenset[str]) -> dict[str, Any]:
    """Return the object, and those in it, without unknown fields: a newer client may send more."""
    known = {key: value for key, value in given.items() if key in fields}
    for key, inner in (("messages", _ITEM_FIELDS), ("publish", _FOLLOWUP_FIELDS), ("schedules", _RECURRING_FIELDS)):
        if isinstance(parts := known.get(key), list):
            known[key] = [_only_known(part, inner) if isinstance(part, dict) else part for part in parts]
    if isinstance(retry := known.get("retry"), dict):
        known["retry"] = _only_known(retry, _RETRY_FIELDS)
    return known


def _cmd_id(given: dict[str, Any]) -> CommandId:
    """Return the `cmd_id` if it is one that a reply may carry."""
    cmd_id = given.get("cmd_id", UNSET)
    if isinstance(cmd_id, str):
        return cmd_id if len(cmd_id) <= CMD_ID_CHARS_MAX else UNSET
    if isinstance(cmd_id, int) and not -(2**63) <= cmd_id < 2**63:
        return UNSET
    return cmd_id if isinstance(cmd_id, int | float | bool | None | UnsetType) else UNSET


def _is_deeper(value: Any, levels: int) -> bool:
    """Tell whether a decoded value is nested deeper than so many levels; never goes deeper itself."""
    if not isinstance(value, dict | list):
        return False
    if levels == 0:
        return True
    inner = value.values() if isinstance(value, dict) else value
    return any(_is_deeper(part, levels - 1) for part in inner)


def _why_not_json(error: Exception) -> str:
    if isinstance(error, UnicodeError):
        return "not JSON: the text is not UTF-8"
    if isinstance(error, RecursionError):
        return f"the object is nested deeper than {DEPTH_MAX}"
    text = str(error)
    if text == "Input data was truncated":
        return "not JSON: it ends too early"
    if "out of range" in text:
        return "not JSON as we read it: a number is out of range"
    return text.replace("JSON is malformed", "not JSON")


def _why_no_command(given: dict[str, Any]) -> str:
    if "cmd" not in given:
        return "cmd is missing"
    name = given["cmd"]
    if not isinstance(name, str):
        return "cmd must be text"
    hint = f"; commands are upper case: {name.upper()}" if name.upper() in COMMANDS else ""
    return f"unknown cmd {name[:SHOWN_CHARS_MAX]!a}{hint}"


def _why_bad_field(text: str, kind: type[CommandBase]) -> str:
    """Turn a decoder's complaint into: which field, what it must be, what it was."""
    if missing := _MISSING.match(text):
        field, inside = missing.groups()
        return f"{inside}.{field} is missing" if inside else f"{field} is missing"
    wrong = _WRONG.match(text)
    if wrong is None:
        return "a field is of the wrong type"
    complaint, path = wrong.groups()
    names: list[str] = re.findall(r"[a-z_]+", path)
    must_be = _must_be(names, path, kind)
    got = _GOT.search(complaint)
    return f"{path.replace('[...]', '')} must be {must_be}" + (f", not {_WORDS.get(got[1], got[1])}" if got else "")


def _must_be(names: list[str], path: str, kind: type[CommandBase]) -> str:
    field = names[-1]
    if field == "lease":
        return _LEASE_MODE if issubclass(kind, Policies) else _LEASE
    if field == "wake":
        return _WAKE_POLICY if issubclass(kind, Policies) else _WAKE_OF_SLEEPER
    if field == "count":
        most = {Peek: PEEK_COUNT_MAX, Fet: COUNT_MAX}.get(kind, BLOCK_ROWS_MAX)
        return f"a whole number from 1 to {most}"
    if field == "timeout" and issubclass(kind, Policies):
        return _WHOLE_TIMEOUT
    if field == "timeout" and kind in (Stage, Renew):
        return MUST_BE["keep"]
    if path.endswith("]"):  # an element of a list or map
        if field in ("uids", "leases"):
            return _LEASE
        objects = {"messages": "text or an object", "publish": "an object"}
        return objects.get(field, _TEXT)
    return MUST_BE.get(field, "of another type")
