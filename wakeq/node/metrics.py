"""NodeMetrics: the metrics of a node, for Prometheus, the API and `wakeq top`.

    actors, files, doors --> samples for the table of metrics

It reads the counters of others; its own measurement is the delay of the event loop.  Reads that need the disk run in
the reader's thread.
"""

import asyncio
import os
import resource
import time
from collections.abc import Callable, Mapping, Sequence, Sized
from pathlib import Path
from typing import Any, Protocol

from wakeq import __version__
from wakeq.actors.log.histogram import STALL_S, Histogram
from wakeq.actors.sessions.door import Admission
from wakeq.data.opening import DataFiles
from wakeq.http.api.queries import Queries
from wakeq.http.exposition import Sample
from wakeq.node.assembly import Assembly
from wakeq.protocol.queue.outcomes import Refusal
from wakeq.storage.state.store import StoreStats

MEASURE_EVERY_S = 0.1
PAGE_BYTES = resource.getpagesize()


class CountsRefusals(Protocol):
    """A port that counts the connections that it refused."""

    refused: int


class LoopDelay:
    """Measures how late the event loop is, ten times a second."""

    def __init__(self) -> None:
        self.stalls_s = Histogram(STALL_S)
        self._due_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to measure, unless that is already happening."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._due_s = loop.time() + MEASURE_EVERY_S
            self._timer = loop.call_at(self._due_s, self._measure)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _measure(self) -> None:
        self.stalls_s.observe(max(0.0, asyncio.get_running_loop().time() - self._due_s))
        self._timer = None
        self.start()


class NodeMetrics:
    """All samples of one node."""

    def __init__(
        self,
        assembly: Assembly,
        files: DataFiles,
        admission: Admission,
        queries: Queries,
        clock_step_ms: Callable[[], int],
        publishes_refused: Callable[[], bool],
    ) -> None:
        # Measured while the node serves.
        self.loop_delay = LoopDelay()
        # The connections by door.
        self.doors: Mapping[str, Sized] = {}
        # The ports that count refused connections.
        self.listeners: Sequence[CountsRefusals] = ()
        # Returns the samples of MoniQue.
        self.monique: Callable[[], list[Sample]] = list
        self._assembly = assembly
        self._files = files
        self._admission = admission
        self._queries = queries
        self._clock_step_ms = clock_step_ms
        self._publishes_refused = publishes_refused
        self._began_s = time.time()

    async def samples(self) -> list[Sample]:
        """Return every metric of the node."""
        state, cluster = await self._read_state(), await self._queries.cluster()
        node = [*self._process(), *self._connections(), *self._log(), *self._state(state), *self._raft(cluster)]
        return node + self.monique()

    async def _read_state(self) -> StoreStats:
        """Read the statistics of the state store in the reader's thread, where a slow disk delays nobody."""
        loop = asyncio.get_running_loop()
        read: asyncio.Future[Any] = loop.create_future()

        def done(result: Any) -> None:
            if not read.done():
                read.set_result(result)

        self._assembly.reader_disk.submit(self._files.store.stats, done)
        result = await read
        if isinstance(result, BaseException):
            raise result
        stats: StoreStats = result
        return stats

    def _process(self) -> list[Sample]:
        usage, runtime = resource.getrusage(resource.RUSAGE_SELF), self._assembly.runtime
        node = str(self._files.directory.identity.node_id)
        return [
            Sample("wakeq_build_info", 1, (__version__, node)),
            Sample("process_start_time_seconds", self._began_s),
            Sample("process_cpu_seconds_total", usage.ru_utime + usage.ru_stime),
            Sample("process_resident_memory_bytes", _resident_bytes()),
            Sample("process_open_fds", len(os.listdir("/proc/self/fd"))),
            Sample("wakeq_loop_stall_seconds", self.loop_delay.stalls_s),
            Sample("wakeq_longest_turn_seconds", runtime.longest_turn_s),
            Sample("wakeq_mail_total", runtime.messages),
            Sample("wakeq_process_failures_total", runtime.failures),
            Sample("wakeq_clock_step_seconds", self._clock_step_ms() / 1000),
        ]

    def _connections(self) -> list[Sample]:
        return [
            *(Sample("wakeq_connections", len(opened), (door,)) for door, opened in self.doors.items()),
            Sample("wakeq_connections_max", self._admission.connections_max),
            Sample("wakeq_connections_refused_total", sum(listener.refused for listener in self.listeners)),
            Sample("wakeq_buffered_bytes", self._admission.held_bytes),
        ]

    def _log(self) -> list[Sample]:
        log, raft_log, queues = self._files.log, self._assembly.raft_log, self._assembly.queues
        directory = self._files.directory
        return [
            Sample("wakeq_log_sync_seconds", raft_log.writer.sync_s),
            Sample("wakeq_log_group_entries", raft_log.writer.group_entries),
            Sample("wakeq_log_written_bytes_total", log.written_bytes),
            Sample("wakeq_log_bytes", log.size_bytes),
            Sample("wakeq_log_last_index", log.last_index),
            Sample("wakeq_state_backlog_bytes", queues.unflushed_bytes),
            Sample("wakeq_entries_set_aside", queues.skipped_count),
            Sample("wakeq_snapshots_total", self._assembly.snapshots.taken),
            Sample("wakeq_disk_free_bytes", directory.free_bytes()),
            Sample("wakeq_disk_reserve_bytes", directory.reserve_bytes()),
            Sample("wakeq_publishes_refused", int(self._publishes_refused())),
        ]

    def _state(self, stats: StoreStats) -> list[Sample]:
        return [
            Sample("wakeq_state_pages", stats.pages),
            Sample("wakeq_state_free_pages", stats.free_pages),
            Sample("wakeq_state_file_bytes", stats.file_bytes),
            Sample("wakeq_state_oldest_reader_behind", stats.oldest_reader_behind),
        ]

    def _raft(self, facts: Mapping[str, Any]) -> list[Sample]:
        refusal: Refusal | None = self._assembly.raft_log.refusal()
        others = [member for member in facts["members"] if member["node"] != facts["node"]]
        behind = [member for member in others if member["behind_bytes"] is not None]
        return [
            Sample("wakeq_raft_term", facts["term"]),
            Sample("wakeq_raft_commit_index", facts["committed"]),
            Sample("wakeq_raft_applied_index", self._assembly.queues.applied[0]),
            Sample("wakeq_raft_is_leader", int(facts["role"] == "leader")),
            Sample("wakeq_raft_serves", int(refusal is None)),
            Sample("wakeq_raft_members", len(facts["members"])),
            *(Sample("wakeq_raft_peer_connected", int(m["is_connected"]), (str(m["node"]),)) for m in others),
            *(Sample("wakeq_raft_peer_behind_bytes", m["behind_bytes"], (str(m["node"]),)) for m in behind),
        ]


def _resident_bytes() -> int:
    """Return the resident memory of this process; 0 where the system does not report it."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return 0
