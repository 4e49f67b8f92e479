"""The report as one HTML page: no script, no network, light and dark by the reader's own setting.

Report --> a page
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from importlib.resources import files

from wakeq.pipeline.report import charts as charts
from wakeq.pipeline.report.report import QueueReport, Report, worst_of

QUEUES_SHOWN = 12
ROWS_SHOWN = 50
FAILURES_SHOWN = 20
STYLE = files("wakeq.pipeline.report").joinpath("report.css").read_text(encoding="utf-8")


def page_of(report: Report) -> str:
    """Return the page."""
    shown, rest = report.queues[:QUEUES_SHOWN], len(report.queues) - ROWS_SHOWN
    sections = [
        _section("Throughput", "Messages a second: published, and done (acknowledged, expired, dead).", _flow(report)),
        _section("Backlog", "Messages in a queue: ready, delayed or leased.", _backlog(report, shown)),
        _section(
            "Waiting", f"From the moment a message was due to its first delivery. {_KEY}", _spans(shown, "waiting")
        ),
        _section("Working", f"From the last delivery to the acknowledgement. {_KEY}", _spans(shown, "working")),
        _section("Queues with problems", "Worst first.", _worst(report)),
        _section(
            "Dead letters, redeliveries, refusals",
            "Why deliveries ended without an acknowledgement, and what the broker refused.",
            _failures(report),
        ),
        _section(
            "Slowest workers", "By the connection that fetched; of those with at least 5 messages.", _workers(report)
        ),
        _section("Busiest hours", "Published by the hour of the day (UTC); each queue by itself.", _hours(shown)),
        _section("All queues", f"{rest} more are in the JSON." if rest > 0 else "All events.", _queues(report)),
    ]
    when = f"{_moment(report.since_s)} to {_moment(report.until_s)} UTC"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>wakeq report</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}</style></head><body><main><h1>What the broker did</h1>"
        f'<p class="when">{when} ({charts.duration(report.until_s - report.since_s)})</p>{_tiles(report)}'
        f"{''.join(sections)}<footer>Made by wakeq report. Percentiles are exact to one percent; "
        f"a column of time is {charts.duration(report.bucket_s)}.</footer></main></body></html>\n"
    )


_KEY = "The dot is the median, the bar reaches to 90 %, the line to 99 % of the messages."


def _section(title: str, about: str, content: str) -> str:
    return f'<section><h2>{escape(title)}</h2><p class="about">{escape(about)}</p>{content}</section>'


def _moment(at_s: int) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%-d %B %Y, %H:%M:%S")


def _tiles(report: Report) -> str:
    events, length_s = report.events, max(1, report.until_s - report.since_s)
    redeliveries = sum(queue.redeliveries for queue in report.queues)
    left = sum(queue.backlog_last for queue in report.queues)
    tiles = (
        ("published", f"{events['published']:,}", False),
        ("published a second", charts.number(float(f"{events['published'] / length_s:.3g}")), False),
        ("acknowledged", f"{events['acked']:,}", False),
        ("left at the end", f"{left:,}", False),
        ("redeliveries", f"{redeliveries:,}", redeliveries > 0),
        ("dead letters", f"{events['dead']:,}", events["dead"] > 0),
        ("expired", f"{events['expired']:,}", events["expired"] > 0),
    )
    items = (
        f'<div class="tile{" warn" if warn else ""}"><b>{text}</b><span>{name}</span></div>'
        for name, text, warn in tiles
    )
    return f'<div class="tiles">{"".join(items)}</div>'


def _flow(report: Report) -> str:
    published = [sum(column) / report.bucket_s for column in zip(*(q.published for q in report.queues), strict=True)]
    done = [sum(column) / report.bucket_s for column in zip(*(q.done for q in report.queues), strict=True)]
    return charts.lines(report.grid_s, [("published", published), ("done", done)], unit="messages a second", fill=True)


def _backlog(report: Report, shown: Sequence[QueueReport]) -> str:
    most = sorted(shown, key=lambda queue: -queue.backlog_max)[: charts.SERIES_MAX]
    return charts.lines(report.grid_s, [(_name(q), q.backlog) for q in most], unit="messages", fill=len(most) == 1)


def _spans(shown: Sequence[QueueReport], what: str) -> str:
    found = [(queue, queue.waiting if what == "waiting" else queue.working) for queue in shown]
    return charts.spans([(_name(queue), spans.p50_s, spans.p90_s, spans.p99_s) for queue, spans in found])


def _worst(report: Report) -> str:
    rows = [(_name(queue), reasons) for queue, reasons in worst_of(report.queues)[:QUEUES_SHOWN]]
    if not rows:
        return '<p class="none">None: few redeliveries, no backlog, no dead letters.</p>'
    return _table(("queue", "why"), rows, texts=1)


def _failures(report: Report) -> str:
    rows = []
    for queue in report.queues:
        reasons = {f"released: {reason}": count for reason, count in queue.releases.items()}
        reasons |= {f"dead: {reason}": count for reason, count in queue.dead_letters.items()}
        reasons |= {f"refused: {reason}": count for reason, count in queue.refused.items()}
        if queue.events["expired"]:
            reasons["expired"] = queue.events["expired"]
        rows += [(_name(queue), reason, f"{count:,}") for reason, count in reasons.items()]
    if not rows:
        return '<p class="none">None in this time.</p>'
    rows.sort(key=lambda row: -int(row[2].replace(",", "")))
    return _table(("queue", "what", "how often"), rows[:FAILURES_SHOWN], texts=1)


def _workers(report: Report) -> str:
    if not report.workers:
        return '<p class="none">No worker acknowledged enough messages.</p>'
    rows = [
        (f"connection {worker.worker}", f"{worker.messages:,}", *_percentiles(worker.working))
        for worker in report.workers
    ]
    return _table(("worker", "messages", "median", "90 %", "99 %"), rows)


def _percentiles(spans: object) -> tuple[str, str, str]:
    p50, p90, p99 = (charts.duration(getattr(spans, name)) for name in ("p50_s", "p90_s", "p99_s"))
    return p50, p90, p99


def _hours(shown: Sequence[QueueReport]) -> str:
    rows = [(_name(queue), queue.hours) for queue in shown if any(queue.hours)]
    return charts.hours(rows) if rows else '<p class="none">Nothing was published in this time.</p>'


def _queues(report: Report) -> str:
    head = (
        "queue",
        "published",
        "delivered",
        "acked",
        "redelivered",
        "dead",
        "expired",
        "backlog",
        "wait 90 %",
        "work 90 %",
    )
    rows = [
        (
            _name(queue), *(f"{queue.events[event]:,}" for event in ("published", "delivered", "acked")),
            f"{queue.redelivered:,}", f"{queue.events['dead']:,}", f"{queue.events['expired']:,}",
            f"{queue.backlog_last:,}", charts.duration(queue.waiting.p90_s), charts.duration(queue.working.p90_s),
        )
        for queue in report.queues[:ROWS_SHOWN]
    ]  # fmt: skip
    return _table(head, rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], *, texts: int = 0) -> str:
    """Return a table; the `texts` columns after the first contain text, the others numbers."""

    def cells(tag: str, row: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{' class=text' if 0 < place <= texts else ''}>{escape(cell)}</{tag}>"
            for place, cell in enumerate(row)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{cells("th", head)}</tr></thead><tbody>{body}</tbody></table></div>'


def _name(queue: QueueReport) -> str:
    return queue.name or "(default)"
