"""Families: every metric that is exported: its name, its kind, what it says, which labels it has.

Dashboards, alert rules and the page of the reference are checked against this table.  Names never change once
released; a label never has more values than doors, states, peers, fates, or `metrics.queues_max` queues.
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
    Family("wakeq_build_info", GAUGE, "Always 1; which release this is, and which node", ("version", "node")),
    Family("process_start_time_seconds", GAUGE, "When the process began, since 1970"),
    Family("process_cpu_seconds_total", COUNTER, "Processor time, in user and system"),
    Family("process_resident_memory_bytes", GAUGE, "Memory in use"),
    Family("process_open_fds", GAUGE, "Open files, connections among them"),
    Family("wakeq_connections", GAUGE, "Open connections", ("door",)),
    Family("wakeq_connections_max", GAUGE, "Connections at all doors that are allowed"),
    Family("wakeq_connections_refused_total", COUNTER, "Connections turned away because there were too many"),
    Family("wakeq_buffered_bytes", GAUGE, "Unfinished commands and unread replies, of all connections"),
    Family("wakeq_loop_stall_seconds", HISTOGRAM, "How late the event loop came to what was due"),
    Family("wakeq_longest_turn_seconds", GAUGE, "The longest turn of the processes since the start"),
    Family("wakeq_mail_total", COUNTER, "Messages that processes have handled; one may carry many commands"),
    Family("wakeq_process_failures_total", COUNTER, "Processes that failed and were ended"),
    Family("wakeq_log_sync_seconds", HISTOGRAM, "How long a sync of the log took"),
    Family("wakeq_log_group_entries", HISTOGRAM, "How many entries went to disk with one sync"),
    Family("wakeq_log_written_bytes_total", COUNTER, "Bytes written to the log since the start"),
    Family("wakeq_log_bytes", GAUGE, "Size of the log on disk"),
    Family("wakeq_log_last_index", GAUGE, "The newest entry"),
    Family("wakeq_state_backlog_bytes", GAUGE, "Bytes of the log that the state store does not have yet"),
    Family("wakeq_state_pages", GAUGE, "LMDB pages in the file of the state"),
    Family("wakeq_state_free_pages", GAUGE, "Of these, not part of the newest state"),
    Family("wakeq_state_file_bytes", GAUGE, "Size of the state on disk"),
    Family("wakeq_state_oldest_reader_behind", GAUGE, "Transactions since the oldest open view began: it pins pages"),
    Family("wakeq_entries_set_aside", GAUGE, "Entries of the log that are left out because they crashed their queue"),
    Family("wakeq_snapshots_total", COUNTER, "Images of the state that were written"),
    Family("wakeq_disk_free_bytes", GAUGE, "Free space on the disk of the data directory"),
    Family("wakeq_disk_reserve_bytes", GAUGE, "Space that publishes may not use"),
    Family("wakeq_publishes_refused", GAUGE, "1 while publishes are refused because the disk is nearly full"),
    Family("wakeq_raft_term", GAUGE, "The term of the log"),
    Family("wakeq_raft_commit_index", GAUGE, "The last entry that is known to be committed"),
    Family("wakeq_raft_applied_index", GAUGE, "The last entry that the queues have applied"),
    Family("wakeq_raft_is_leader", GAUGE, "1 if this node leads"),
    Family("wakeq_raft_serves", GAUGE, "1 if this node may answer from its memory now"),
    Family("wakeq_raft_members", GAUGE, "Nodes that belong to the cluster"),
    Family("wakeq_raft_peer_connected", GAUGE, "1 if there is a connection to that node", ("node",)),
    Family("wakeq_raft_peer_behind_bytes", GAUGE, "What that node lacks; only the leader knows", ("node",)),
    Family("wakeq_clock_step_seconds", GAUGE, "How far the wall clock is ahead of the cluster clock"),
)

MONIQUE = (
    Family(
        "wakeq_monique_messages_total",
        COUNTER,
        "Messages that were taken, by `websocket`, by `zeromq`, or from the `queue` of answers",
        ("source",),
    ),
    Family("wakeq_monique_pushed_total", COUNTER, "Messages pushed to WebSocket clients, one for each of them"),
    Family(
        "wakeq_monique_dropped_total",
        COUNTER,
        "Messages that went no further, the log says why: what came `from_component`, what would have harmed "
        "`to_component`, what nobody took `to_controller`, a `kill` without sense, what did not get `to_queue`, a dead "
        "letter `from_queue`, or an `answer` that is none",
        ("place",),
    ),
    Family("wakeq_monique_slow_clients_total", COUNTER, "WebSocket clients disconnected because they did not read"),
    Family("wakeq_monique_subscriptions", GAUGE, "Subscriptions of WebSocket clients, controllers and components"),
    Family(
        "wakeq_monique_components", GAUGE, "Components at the ports of controllers; they count against connections_max"
    ),
    Family(
        "wakeq_monique_tasks_total",
        COUNTER,
        "Tasks with a route: `kept` on their queue or `refused`, `given` to a component, `returned` because it went "
        "away, `answered` by one, `killed`",
        ("fate",),
    ),
    Family("wakeq_monique_tasks_out", GAUGE, "Tasks of queues that components are working on"),
)

ALL_QUEUES = (
    Family("wakeq_queues", GAUGE, "Queues; only the leader exports what has to do with queues"),
    Family(
        "wakeq_queues_unlisted", GAUGE, "Queues without series of their own: there are more than metrics.queues_max"
    ),
    Family("wakeq_queues_paused", GAUGE, "Queues that are paused"),
    Family("wakeq_messages", GAUGE, "Messages in all queues", ("state",)),
    Family("wakeq_published_total", COUNTER, "Messages published, in all queues since the start"),
    Family("wakeq_delivered_total", COUNTER, "Deliveries, in all queues since the start"),
    Family("wakeq_acked_total", COUNTER, "Messages acknowledged, in all queues since the start"),
    Family("wakeq_released_total", COUNTER, "Deliveries that ended without it, in all queues since the start"),
    Family("wakeq_expired_total", COUNTER, "Messages that expired, in all queues since the start"),
    Family("wakeq_dead_total", COUNTER, "Messages that became dead letters, in all queues since the start"),
    Family("wakeq_moved_total", COUNTER, "Messages taken away by an operator, in all queues since the start"),
    Family("wakeq_wakes_total", COUNTER, "Wake-ups sent, in all queues since the start"),
)

QUEUE = (
    Family("wakeq_queue_messages", GAUGE, "Messages in a queue", ("queue", "state")),
    Family("wakeq_queue_bytes", GAUGE, "Bytes of bodies and headers in a queue", ("queue",)),
    Family(
        "wakeq_queue_oldest_ready_age_seconds",
        GAUGE,
        "For how long the oldest ready message could have been handed out; absent while it is being read",
        ("queue",),
    ),
    Family("wakeq_queue_subscribers", GAUGE, "Connections that subscribed to a queue", ("queue",)),
    Family("wakeq_queue_waiting", GAUGE, "Fetches that wait for a message of a queue", ("queue",)),
    Family("wakeq_queue_paused", GAUGE, "1 while a queue is paused", ("queue",)),
    Family("wakeq_queue_published_total", COUNTER, "Messages published to a queue", ("queue",)),
    Family("wakeq_queue_delivered_total", COUNTER, "Deliveries from a queue", ("queue",)),
    Family("wakeq_queue_acked_total", COUNTER, "Messages of a queue that were acknowledged", ("queue",)),
    Family("wakeq_queue_released_total", COUNTER, "Deliveries from a queue that ended without it", ("queue",)),
    Family("wakeq_queue_dead_total", COUNTER, "Messages of a queue that became dead letters", ("queue",)),
    Family("wakeq_queue_wakes_total", COUNTER, "Wake-ups sent to subscribers of a queue", ("queue",)),
)

FAMILIES = {family.name: family for family in (*NODE, *MONIQUE, *ALL_QUEUES, *QUEUE)}
