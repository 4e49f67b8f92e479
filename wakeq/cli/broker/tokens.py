"""`wakeq token create|list|revoke`: the tokens of a broker, in the file that it reads.

    NAME, patterns, rights --> a new token on standard output or in a file, once; its hash in the broker's file

The commands work beside a running broker, which notices the change, and need no token: write access to the file is
enough.
"""

import os
import re
import secrets
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from wakeq.cli.common import confirm, json_option, yes_option
from wakeq.cli.output import print_json, print_table, say
from wakeq.config.layers import load
from wakeq.config.settings import Settings
from wakeq.protocol.access import TOKEN_PREFIX, Grant, Right, check_pattern, check_token_name, digest_of
from wakeq.protocol.errors import BadField
from wakeq.storage.credentials import Grants, TokenFile
from wakeq.storage.files import new_private_file

TOKEN_BYTES = 32
SPAN = re.compile(r"(\d{1,6})([hdw])")
HOURS = {"h": 1, "d": 24, "w": 168}


def where_options(command: click.decorators.FC) -> click.decorators.FC:
    """Add the flags that choose the broker."""
    data_dir = click.option(
        "--data-dir", type=click.Path(path_type=Path), metavar="DIR", help="The broker's data directory."
    )
    config = click.option(
        "--config", "config_file", type=click.Path(path_type=Path), metavar="FILE", help="The broker's settings file."
    )
    return data_dir(config(command))


def settings_of(data_dir: Path | None, config_file: Path | None) -> Settings:
    """Return the settings of the chosen broker."""
    flags: dict[str, object] = {} if data_dir is None else {"data_dir": data_dir}
    return load(config_file=config_file, environment=os.environ, flags=flags).settings


@click.group()
def token() -> None:
    """Create, list and revoke the tokens of clients."""


@token.command()
@click.argument("name")
@click.option(
    "--queues",
    metavar="PATTERN",
    multiple=True,
    default=("*",),
    show_default=True,
    help="A queue, or the beginning of names followed by *; repeatable.",
)
@click.option(
    "--rights",
    metavar="LIST",
    default="publish,fetch",
    show_default=True,
    help="Any of publish, fetch, admin, separated by commas.",
)
@click.option(
    "--expires", metavar="WHEN", help="After 12h, 30d, 8w and so on, or on a date such as 2030-12-31; default: never."
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the token to this new file, which only you can read, instead of printing it.",
)
@where_options
@json_option
def create(
    name: str,
    queues: tuple[str, ...],
    rights: str,
    expires: str | None,
    out: Path | None,
    data_dir: Path | None,
    config_file: Path | None,
    as_json: bool,
) -> None:
    """Create a token called NAME and print it.

    Only its hash is stored, so it cannot be shown again.
    """
    settings = settings_of(data_dir, config_file)
    secret = TOKEN_PREFIX + secrets.token_urlsafe(TOKEN_BYTES)
    now = datetime.now(UTC).replace(microsecond=0)
    grant = Grant(
        check_token_name(name),
        digest_of(secret).hex(),
        tuple(map(check_pattern, queues)),
        rights_of(rights),
        now,
        end_of(expires, now),
    )

    def add(grants: Grants) -> Grants:
        if any(other.name == name for other in grants):
            raise BadField(
                f"a token {name} exists already; revoke it first, or create one with another name before that"
            )
        return [*grants, grant]

    if out is None:
        TokenFile(settings.tokens_path).change(add)
    else:
        with new_private_file(out) as file:
            TokenFile(settings.tokens_path).change(add)
            file.write(secret + "\n")
    if as_json:
        print_json({"name": name, **({"token": secret} if out is None else {"file": str(out)})})
    elif out is None:
        click.echo(secret)
    if not settings.auth.required:
        say("only a broker with --auth, or with the setting auth.required, requires tokens")


@token.command("list")
@where_options
@json_option
def list_tokens(data_dir: Path | None, config_file: Path | None, as_json: bool) -> None:
    """List the tokens and their rights, but not their secrets."""
    now_ms = int(datetime.now(UTC).timestamp() * 1000)
    rows = [_row(grant, now_ms) for grant in TokenFile(settings_of(data_dir, config_file).tokens_path).read()]
    if as_json:
        print_json({"tokens": rows})
    else:
        columns = ("name", "rights", "queues", "created_at", "expires_at", "valid")
        print_table(
            columns,
            [[_shown(row[column]) for column in columns] for row in rows],
            nothing="there are no tokens; `wakeq token create` makes one",
        )


@token.command()
@click.argument("name")
@where_options
@yes_option
def revoke(name: str, data_dir: Path | None, config_file: Path | None, yes: bool) -> None:
    """Revoke the token NAME, and disconnect clients that use it."""
    confirm(f"Revoke the token {name} and disconnect the clients that use it?", yes=yes)

    def remove(grants: Grants) -> Grants:
        left = [grant for grant in grants if grant.name != name]
        if len(left) == len(grants):
            raise BadField(f"there is no token {name}; `wakeq token list` shows all")
        return left

    TokenFile(settings_of(data_dir, config_file).tokens_path).change(remove)


def rights_of(text: str) -> tuple[Right, ...]:
    """Return the rights in a text such as `publish,fetch`."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    known = {right.value: right for right in Right}
    wrong = [word for word in words if word not in known]
    if wrong or not words:
        raise BadField(f"rights are {text!r}; give any of {', '.join(known)}, separated by commas")
    return tuple(known[word] for word in dict.fromkeys(words))


def end_of(text: str | None, now: datetime) -> datetime | None:
    """Return the moment at which a new token expires."""
    if text is None:
        return None
    if span := SPAN.fullmatch(text):
        return now + timedelta(hours=int(span[1]) * HOURS[span[2]])
    try:
        end = datetime.fromisoformat(text)
    except ValueError:
        raise BadField(f"{text!r} is not a time to expire; write 12h, 30d, 8w, or a date such as 2030-12-31") from None
    end = end if end.tzinfo else end.replace(tzinfo=UTC)
    if end <= now:
        raise BadField(f"{text} is in the past; give a time in the future")
    return end


def _row(grant: Grant, now_ms: int) -> dict[str, object]:
    return {
        "name": grant.name,
        "rights": [right.value for right in grant.rights],
        "queues": list(grant.queues),
        "created_at": grant.created_at.isoformat(),
        "expires_at": None if grant.expires_at is None else grant.expires_at.isoformat(),
        "valid": now_ms < grant.end_ms,
    }


def _shown(value: object) -> object:
    if isinstance(value, list):
        return ", ".join(value)
    return "never" if value is None else value
