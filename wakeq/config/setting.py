"""Setting: the declaration of one setting, and the check of its values.

    a field of the model --> Setting: its name, type, bounds and meaning
    a value, or its text in the environment --> the value in the setting's type, or BadSettings

A value is never bent to fit.  This file knows no particular setting.
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wakeq.protocol.errors import BadSettings

KIB = 1024
MIB = 1024 * KIB

ENVIRONMENT_PREFIX = "WAKEQ_"
BYTES = re.compile(r"(\d+)\s*(B|KiB|MiB|GiB|TiB)?")
BYTE_UNITS = {None: 1, "B": 1, "KiB": KIB, "MiB": MIB, "GiB": KIB * MIB, "TiB": MIB * MIB}
TRUTHS = dict.fromkeys(("true", "yes", "on", "1"), True) | dict.fromkeys(("false", "no", "off", "0"), False)


def setting(
    default: object,
    about: str,
    *,
    unit: str = "",
    least: float | None = None,
    most: float | None = None,
    one_of: tuple[str, ...] = (),
    kind: type | None = None,
    word: str = "",
    reloadable: bool = False,
) -> Any:
    """Declare one setting; the documentation and the checks use this declaration.

    `kind` is needed only where the default is None, which means that there is no limit.  `word` is accepted instead of
    a value; `load` puts the value in its place.
    """
    kind = kind or type(default)
    bounds = {"least": least, "most": most, "one_of": one_of, "word": word}
    return field(
        default=default,
        metadata={"about": about, "unit": unit, "kind": kind, "reloadable": reloadable, **bounds},
    )


def section(kind: type, about: str) -> Any:
    """Declare a group of settings: a table in the file."""
    return field(default_factory=kind, metadata={"about": about, "section": kind})


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting; `name` is the whole name: `journal.keep_bytes`."""

    name: str
    kind: type
    default: object
    about: str
    unit: str
    least: float | None
    most: float | None
    one_of: tuple[str, ...]
    word: str
    reloadable: bool

    @property
    def environment_name(self) -> str:
        return ENVIRONMENT_PREFIX + self.name.replace(".", "_").upper()

    def described(self) -> str:
        """Describe a valid value, for a message."""
        if self.one_of:
            return "one of " + ", ".join(self.one_of)
        if self.kind not in (int, float):
            pairs = "a table of text, or NAME=VALUE pairs with commas between"
            return {bool: "true or false", Path: "a path", dict: pairs}.get(self.kind, "text")
        words = "a number" if self.kind is float else "a whole number"
        words += f" of {self.unit}" if self.unit else ""
        if self.least is not None:
            words += f", at least {self.least}" if self.most is None else f" from {self.least} to {self.most}"
        words += f", or {self.word}" if self.word else ""
        return words + (", also written as 64MiB" if self.unit == "bytes" else "")

    def checked(self, value: object, origin: str) -> object:
        """Return the value in the setting's type, or raise BadSettings."""
        fitting = self._fitting(value)
        if fitting is None:
            raise BadSettings(f"{self.name} is {as_found(value)} ({origin}); it must be {self.described()}")
        return fitting

    def _fitting(self, value: object) -> object | None:
        """Return the converted value, or None if its type or range is wrong."""
        if self.word and isinstance(value, str) and value.strip() == self.word:
            return self.word
        read = self._read(value.strip()) if isinstance(value, str) else value
        if self.kind is float and isinstance(read, int) and not isinstance(read, bool):
            read = float(read)
        if self.kind is Path:
            return read if isinstance(read, Path) and str(read) else None
        if self.kind is dict:
            texts = read.values() if isinstance(read, dict) else [None]
            return read if all(isinstance(text, str) and text for text in texts) else None
        if type(read) is not self.kind or (self.one_of and read not in self.one_of):
            return None
        if isinstance(read, int | float) and self.kind is not bool:
            # NaN is within no bounds.
            is_within = (self.least is None or read >= self.least) and (self.most is None or read <= self.most)
            return read if is_within else None
        return read

    def _read(self, text: str) -> object | None:
        """Return the value of a text: the environment contains nothing but text, and a file may say "64MiB"."""
        if self.kind is bool:
            return TRUTHS.get(text.lower())
        if self.kind is Path:
            return Path(text) if text else None
        if self.kind is str:
            return text
        if self.kind is dict:
            pairs = [pair.partition("=") for pair in text.split(",") if pair.strip()]
            return {name.strip(): value.strip() for name, _, value in pairs}
        if self.unit == "bytes":
            return parse_bytes(text)
        try:
            return float(text) if self.kind is float else int(text)
        except ValueError:
            return None


def declared(model: type[Any], prefix: str = "") -> Iterator[Setting]:
    """Yield every setting of the model in the order of declaration, sections after plain settings."""
    items = dataclasses.fields(model)
    for item in items:
        if "section" not in item.metadata:
            yield Setting(name=prefix + item.name, default=item.default, **item.metadata)
    for item in items:
        if "section" in item.metadata:
            yield from declared(item.metadata["section"], f"{prefix}{item.name}.")


def parse_bytes(text: str) -> int | None:
    """Return the number of bytes in "64MiB" or "65536", or None if the text is no such number."""
    match = BYTES.fullmatch(text)
    return int(match[1]) * BYTE_UNITS[match[2]] if match else None


def as_found(value: object) -> str:
    """Return an invalid value as its source spelt it."""
    return shown(value) if isinstance(value, bool) else repr(value)


def shown(value: object, unit: str = "") -> str:
    """Return a value as people and TOML write it; whole mebibytes in MiB."""
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return f'"{",".join(f"{name}={text}" for name, text in value.items())}"'
    if unit == "bytes" and isinstance(value, int) and value and value % MIB == 0:
        return f'"{value // MIB}MiB"'
    return f'"{value}"' if isinstance(value, str | Path) else str(value)
