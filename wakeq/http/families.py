"""Families: the table of all exported metrics: name, kind, help text, labels.

Dashboards, alert rules and the reference are checked against this table.  Names never change once released; a label
never has more values than there are doors, states, peers, fates, reasons, or `metrics.queues_max` queues.
"""

from collections.abc import Sequence
from typing import NamedTuple

GAUGE, COUNTER, HISTOGRAM = "gauge", "counter", "histogram"
STATES = ("ready", "delayed", "leased")


class Family(NamedTuple):
    """One metric."""

    name: str
    kind: str
    about: str
    labels: Sequence[str] = ()


NODE = (
    Family("wakeq_build_info", GAUGE, "Always 1; the labels are the release and the node", ("version", "node")),
    Family("process_start_time_seconds", GAUGE, "Start time of the process, in seconds since 1970"),
    Family("process_cpu_seconds_total", COUNTER, "Processor time, user and system"),
    Family("process_resident_memory_bytes", GAUGE, "Memory in use"),
    Family("process_open_fds", GAUGE, "Open files, including connections"),
    Family("wakeq_connections", GAUGE, "Open connections", ("door",)),
    Family("wakeq_connections_max", GAUGE, "The most connections allowed, on all ports together"),
    Family("wakeq_connections_refused_total", COUNTER, "Connections refused because there were too many"),
    Family("wakeq_buffered_bytes", GAUGE, "Unfinished commands and unread replies of all connections"),
    Family("wakeq_loop_stall_seconds", HISTOGRAM, "Delay of the event loop"),
    Family("wakeq_longest_turn_seconds", GAUGE, "The longest turn of an actor since the start"),
    Family("wakeq_mail_total", COUNTER, "Messages handled by actors; one may carry many commands"),
    Family("wakeq_process_failures_total", COUNTER, "Actors that failed and were ended"),
    Family("wakeq_log_sync_seconds", HISTOGRAM, "Duration of a sync of the log"),
    Family("wakeq_log_group_entries", HISTOGRAM, "Entries written to disk with one sync"),
    Family("wakeq_log_written_bytes_total", COUNTER, "Bytes written to the log since the start"),
    Family("wakeq_log_bytes", GAUGE, "Size of the log on disk"),
    Family("wakeq_log_last_index", GAUGE, "The newest entry in the log"),
    Family("wakeq_state_backlog_bytes", GAUGE, "Bytes of the log that the state store does not have yet"),
    Family("wakeq_state_pages", GAUGE, "LMDB pages in the file of the state"),
    Family("wakeq_state_free_pages", GAUGE, "Pages that are not part of the newest state"),
    Family("wakeq_state_file_bytes", GAUGE, "Size of the state on disk"),
    Family("wakeq_state_oldest_reader_behind", GAUGE, "Age of the oldest open view in transactions; it pins pages"),
    Family("wakeq_entries_set_aside", GAUGE, "Entries of the log that are skipped because they crashed their queue"),
    Family("wakeq_snapshots_total", COUNTER, "Snapshots written"),
    Family("wakeq_disk_free_bytes", GAUGE, "Free space on the disk of the data directory"),
    Family("wakeq_disk_reserve_bytes", GAUGE, "Space that publishes may not use"),
    Family("wakeq_publishes_refused", GAUGE, "1 while publishes are refused because the disk is nearly full"),
    Family("wakeq_raft_term", GAUGE, "The term of the log"),
    Family("wakeq_raft_commit_index", GAUGE, "The last entry known to be committed"),
    Family("wakeq_raft_applied_index", GAUGE, "The last entry applied by the queues"),
    Family("wakeq_raft_is_leader", GAUGE, "1 if this node leads"),
    Family("wakeq_raft_serves", GAUGE, "1 if this node may answer from its memory now"),
    Family("wakeq_raft_members", GAUGE, "Members of the cluster"),
    Family("wakeq_raft_peer_connected", GAUGE, "1 if that node is connected", ("node",)),
    Family("wakeq_raft_peer_behind_bytes", GAUGE, "Bytes of the log that it lacks; only the leader knows", ("node",)),
    Family("wakeq_clock_step_seconds", GAUGE, "How far the wall clock is ahead of the cluster clock"),
)

MONIQUE = (
    Family(
        "wakeq_monique_messages_total",
        COUNTER,
        "Messages received over `websocket`, over `zeromq`, or from the `queue` of answers",
        ("source",),
    ),
    Family("wakeq_monique_pushed_total", COUNTER, "Messages pushed to WebSocket clients, counted once for each client"),
    Family(
        "wakeq_monique_dropped_total",
        COUNTER,
        "Messages that were dropped; the log says why: invalid `from_component`, harmful `to_component`, "
        "without a component `to_controller`, a senseless `kill`, refused on the way `to_queue`, a dead letter "
        "`from_queue`, or an invalid `answer`",
        ("place",),
    ),
    Family("wakeq_monique_slow_clients_total", COUNTER, "WebSocket clients disconnected because they did not read"),
    Family("wakeq_monique_subscriptions", GAUGE, "Subscriptions of WebSocket clients, controllers and components"),
    Family(
        "wakeq_monique_components", GAUGE, "Components connected to controllers; they count against connections_max"
    ),
    Family(
        "wakeq_monique_tasks_total",
        COUNTER,
        "Tasks with a route: `kept` on their queue or `refused`, `given` to a component, `returned` because it "
        "disconnected, `answered`, `killed`",
        ("fate",),
    ),
    Family("wakeq_monique_tasks_out", GAUGE, "Tasks of queues that components are processing"),
)

ALL_QUEUES = (
    Family("wakeq_queues", GAUGE, "Queues; only the leader exports metrics of queues"),
    Family("wakeq_queues_unlisted", GAUGE, "Queues without own series, since there are more than metrics.queues_max"),
    Family("wakeq_queues_paused", GAUGE, "Queues that are paused"),
    Family("wakeq_messages", GAUGE, "Messages in all queues", ("state",)),
    Family("wakeq_published_total", COUNTER, "Messages published, in all queues since the start"),
    Family("wakeq_delivered_total", COUNTER, "Deliveries, in all queues since the start"),
    Family("wakeq_acked_total", COUNTER, "Messages acknowledged, in all queues since the start"),
    Family("wakeq_released_total", COUNTER, "Deliveries that ended without an ACK, in all queues since the start"),
    Family("wakeq_expired_total", COUNTER, "Messages that expired, in all queues since the start"),
    Family("wakeq_dead_total", COUNTER, "Messages that became dead letters, in all queues since the start"),
    Family("wakeq_moved_total", COUNTER, "Messages moved by an operator, in all queues since the start"),
    Family("wakeq_wakes_total", COUNTER, "Wake-ups sent, in all queues since the start"),
    Family("wakeq_wait_seconds", HISTOGRAM, "Time from when a message was ready until it was delivered, in all queues"),
    Family("wakeq_work_seconds", HISTOGRAM, "Time from a delivery until its acknowledgement, in all queues"),
    Family(
        "wakeq_unacknowledged_total",
        COUNTER,
        "Deliveries that ended without an ACK, in all queues since the start, by reason: `nack`, `timeout`, "
        "`disconnect`, `returned` by its worker as no failure, `rejected` or `exhausted` as a dead letter",
        ("reason",),
    ),
)

QUEUE = (
    Family("wakeq_queue_messages", GAUGE, "Messages in a queue", ("queue", "state")),
    Family("wakeq_queue_bytes", GAUGE, "Bytes of bodies and headers in a queue", ("queue",)),
    Family(
        "wakeq_queue_oldest_ready_age_seconds",
        GAUGE,
        "How long the oldest ready message has been ready; absent while it is being read",
        ("queue",),
    ),
    Family("wakeq_queue_subscribers", GAUGE, "Connections subscribed to a queue", ("queue",)),
    Family("wakeq_queue_waiting", GAUGE, "Fetches waiting for a message of a queue", ("queue",)),
    Family("wakeq_queue_paused", GAUGE, "1 while a queue is paused", ("queue",)),
    Family("wakeq_queue_published_total", COUNTER, "Messages published to a queue", ("queue",)),
    Family("wakeq_queue_delivered_total", COUNTER, "Deliveries from a queue", ("queue",)),
    Family("wakeq_queue_acked_total", COUNTER, "Messages of a queue that were acknowledged", ("queue",)),
    Family("wakeq_queue_released_total", COUNTER, "Deliveries from a queue that ended without an ACK", ("queue",)),
    Family("wakeq_queue_dead_total", COUNTER, "Messages of a queue that became dead letters", ("queue",)),
    Family("wakeq_queue_wakes_total", COUNTER, "Wake-ups sent to subscribers of a queue", ("queue",)),
    Family("wakeq_queue_is_dead_letter", GAUGE, "1 if a queue gets the dead letters of another one", ("queue",)),
    Family(
        "wakeq_queue_wait_seconds",
        HISTOGRAM,
        "Time from when a message of a queue was ready until it was delivered; absent before the first delivery",
        ("queue",),
    ),
    Family(
        "wakeq_queue_work_seconds",
        HISTOGRAM,
        "Time from a delivery of a queue until its acknowledgement; absent before the first delivery",
        ("queue",),
    ),
    Family(
        "wakeq_queue_unacknowledged_total",
        COUNTER,
        "Deliveries from a queue that ended without an ACK, by reason; absent before the first one",
        ("queue", "reason"),
    ),
)

FAMILIES = {family.name: family for family in (*NODE, *MONIQUE, *ALL_QUEUES, *QUEUE)}
