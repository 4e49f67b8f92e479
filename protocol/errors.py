"""All errors that a peer, a disk or a user can cause: one tree under WakeqError.

`code` is sent on the wire and never changes once released. `closes` says that the stream cannot be trusted afterwards.
`exit_status` is the exit status of a process that the error ends (docs/reference/exit-codes.md). A message says what
happened, to what, and what to try.
"""

from typing import ClassVar, Final

# What to do about a damaged state store: the hint of DamagedFile, wherever the damage is found.
REBUILD: Final = (
    "stop the node, rename the folder `state` of its data directory and start it again: it makes a new one from its "
    "snapshot and its log (`wakeq repair` does so if it finds the damage)"
)


class WakeqError(Exception):
    """Root of the tree.  Never raised itself."""

    code: ClassVar[str] = "INTERNAL"
    closes: ClassVar[bool] = False
    exit_status: ClassVar[int] = 1


# Refusals ------------------------------------------------------------------------------------------------------


class Refused(WakeqError):
    """A command that the broker answers with `nok`."""

    code = "REFUSED"


class BadJson(Refused):
    code = "BAD_JSON"


class NotSpoken(BadJson):
    """A peer that does not speak the protocol: a web page can make a browser post lines to a port."""

    closes = True


class BadCommand(Refused):
    """A command that this broker does not know."""

    code = "BAD_COMMAND"


class BadField(Refused):
    """A field that is missing, of the wrong type, or out of its range."""

    code = "BAD_FIELD"


class BadName(Refused):
    """A queue name outside of the one rule: bytes 33..126, at most 255 of them."""

    code = "BAD_NAME"


class TooLarge(Refused):
    """A message, a batch or a frame beyond a limit."""

    code = "TOO_LARGE"


class FrameTooLarge(TooLarge):
    """A frame that was not read at all, so the beginning of the next one is unknown."""

    closes = True


class QueueNotFound(Refused):
    code = "Q_NOT_FOUND"


class QueueExists(Refused):
    code = "Q_EXISTS"


class QueueFull(Refused):
    code = "QUEUE_FULL"


class TooManyQueues(Refused):
    """The node has as many queues as it may, or the token has made as many as it may."""

    code = "TOO_MANY_QUEUES"


class KeyRange(Refused):
    """A priority outside of the range that the queue allows."""

    code = "KEY_RANGE"


class StaleLease(Refused):
    code = "STALE_LEASE"


class EpochExpired(Refused):
    """The claim of this epoch timed out or was released, and its messages are back in the queue."""

    code = "EPOCH_EXPIRED"


class EpochSettled(Refused):
    """The messages of this epoch were acknowledged, or its reader has gone on without them."""

    code = "EPOCH_SETTLED"


class StashExpired(Refused):
    """The stash that was to be published is gone, or not complete."""

    code = "STASH_EXPIRED"


class EpochOld(Refused):
    """The writer has published this epoch or a later one, and this is no repetition: it is another write, or writer."""

    code = "EPOCH_OLD"


class MessageNotFound(Refused):
    """An acknowledgement with follow-ups whose message is gone: none of it was done."""

    code = "UNKNOWN_UID"


class NotLeader(Refused):
    code = "NOT_LEADER"
    exit_status = 69


class NoQuorum(Refused):
    code = "NO_QUORUM"
    exit_status = 69


class OutcomeUnknown(Refused):
    """The change may have been made or not, and there is no way to find out."""

    code = "UNKNOWN"


class Busy(Refused):
    """Not now; the same command may succeed later."""

    code = "BUSY"


class CommandSetAside(Refused):
    """The broker crashed on this command three times, and continues without it."""

    code = "SET_ASIDE"


class DiskFull(Refused):
    code = "DISK_FULL"


class Unauthorized(Refused):
    """No token, or one that is not valid.  The text does not say what is wrong with it."""

    code = "UNAUTHORIZED"
    closes = True
    exit_status = 77


class Forbidden(Refused):
    """The token does not carry the right to do this to this queue."""

    code = "FORBIDDEN"
    exit_status = 77


# Storage ----------------------------------------------------------------------------------------------------------


class StorageError(WakeqError):
    """The data directory cannot be used, or can no longer be trusted.  Stops the node."""

    code = "STORAGE"
    exit_status = 70


class DamagedFile(StorageError):
    """A wrong marker, version, checksum or content.  The text names file, offset, found, expected and a remedy."""

    code = "DAMAGED"
    exit_status = 65

    def __init__(self, path: object, offset: int, *, found: str, expected: str, hint: str) -> None:
        super().__init__(f"{path}: at offset {offset}: expected {expected}, found {found}; {hint}")
        self.path, self.offset, self.found, self.expected, self.hint = path, offset, found, expected, hint


class DirectoryInUse(StorageError):
    """Another node holds the data directory."""

    code = "IN_USE"
    exit_status = 73


class WrongVersion(StorageError):
    """The data directory is of a release that this one does not read, or of version 1 with `--no-upgrade`."""

    code = "VERSION"
    exit_status = 66


class HistoryGone(StorageError):
    """A part of the journal was removed while it was being read."""

    code = "HISTORY_GONE"


class SyncFailed(StorageError):
    """A write or sync failed.  What it covered may be lost; it is never retried as if it were still there."""

    code = "SYNC_FAILED"
    exit_status = 74
    # The disk is full and not broken.
    is_full = False


class LogDiverged(StorageError):
    """The leader's log contradicts entries committed here: a majority has lost its disks, or there is a bug."""

    code = "DIVERGED"
    exit_status = 65


class DiskDisowned(StorageError):
    """This data directory is not the one that joined the cluster, or has lost what it confirmed."""

    code = "DISOWNED"
    exit_status = 65


class PeerRefused(WakeqError):
    """The other end of a connection between nodes is not a node of this cluster."""

    code = "PEER"


# Settings, installations, connections ---------------------------------------------------------------------


class BadSettings(WakeqError):
    code = "SETTINGS"
    exit_status = 78


class CannotListen(BadSettings):
    """A port or an address of the settings is not available, perhaps only for now."""

    code = "LISTEN"
    exit_status = 71


class NotInstalled(WakeqError):
    """A package of an extra, or Java, is missing."""

    code = "NOT_INSTALLED"
    exit_status = 69


class SparkFailed(WakeqError):
    """A job of Spark failed for a reason that wakeq does not know."""

    code = "SPARK"


class QueryFailed(WakeqError):
    """DuckDB could not answer a question of a report."""

    code = "QUERY"


class OnEventLoop(WakeqError, RuntimeError):
    """A call that waits was made where an event loop runs, and would block it."""

    code = "ON_EVENT_LOOP"


class BrokerUnreachable(WakeqError):
    code = "UNREACHABLE"
    exit_status = 69


class Disconnected(WakeqError):
    """The connection ended before the answer arrived."""

    code = "DISCONNECTED"
    exit_status = 69


BY_CODE: dict[str, type[Refused]] = {
    error.code: error
    for error in (
        Refused, BadJson, BadCommand, BadField, BadName, TooLarge, QueueNotFound, QueueExists, QueueFull, KeyRange,
        TooManyQueues, StaleLease, EpochExpired, EpochSettled, StashExpired, EpochOld, MessageNotFound, NotLeader,
        NoQuorum, OutcomeUnknown, Busy, CommandSetAside, DiskFull, Unauthorized, Forbidden,
    )
}  # fmt: skip

# The same call may succeed a little later.
NOT_NOW = (BrokerUnreachable, Busy, Disconnected, NoQuorum, NotLeader, OutcomeUnknown)
