"""RingCommands: the commands of a subscriber that change something: they become entries of the log.

    runs of PUB, ACK, DEL, CREATE, UPDATE, DROP or PURGE --> entries, each with its Asker --> Propose

All plain commands in a run for one queue become one entry.  The queue decides whether it accepts the entry.
"""

import logging
from collections.abc import Sequence
from typing import Any

from wakeq.actors.mail import Asker, Leaving, Propose
from wakeq.actors.sessions.requests import Pending, Requests
from wakeq.actors.sessions.worker_replies import (
    draft_of,
    drafts_of,
    named_by,
    plain_draft_of,
    plain_drafts_of,
    queue_entry_of,
    settled_by,
    token_of,
)
from wakeq.protocol.catalog import Policies
from wakeq.protocol.errors import BadField, Refused
from wakeq.protocol.log import entries as log
from wakeq.protocol.log.entries import ANY_TOKEN, Draft, Publish, Token
from wakeq.protocol.wire.worker import codec as wire

Proposed = tuple[log.Entry, Asker | None]

logger = logging.getLogger("wakeq.admin")  # the same as for operations over HTTP


Gathered = tuple[list[Draft], list[int]]  # plain publishes to one queue, and their places: they become one entry


class RingCommands(Requests):
    """See the head of this file."""

    _session = ""  # given in HELLO; the client numbers its publishes within it

    # --- publishing ------------------------------------------------------------------------------------------------

    def _publish(self, run: Sequence[Any]) -> None:
        """Make one entry of all plain publishes to a queue."""
        plain = plain_drafts_of(run, self._services.limits.message_bytes_max)
        if plain is None:
            self._publish_mixed(run)
            return
        drafts, alike = plain
        gathered = _by_queue(run, drafts)
        names = tuple(gathered)
        pending = self._begin(run, names)
        door, worker = self._door.kind, self._worker
        items: list[Proposed] = [
            (
                Publish(name, mine, door=door, worker=worker, alike=alike),
                Asker(self, pending, places if len(places) > 1 else places[0]),
            )
            for name, (mine, places) in gathered.items()
        ]
        self._propose(items, names)

    def _publish_mixed(self, run: Sequence[Any]) -> None:
        """The same for publishes of any kind; one with an id, or of several messages, becomes an entry of its own."""
        pending = self._begin(run)
        gathered: dict[str, Gathered] = {}
        items: list[Proposed] = []
        limit = self._services.limits.message_bytes_max
        for place, pub in enumerate(run):
            name = pub.qname
            try:
                if pub.n is not None and not self._session:
                    raise BadField("n needs a session: send HELLO with one first")
                if _is_whole(pub):
                    whole = self._whole(pub, drafts_of(pub, limit))
                    if name in gathered:  # keep the order: earlier publishes first
                        items.append(self._gathered_entry(name, gathered.pop(name), run, pending))
                    items.append((whole, Asker(self, pending, place)))
                    continue
                draft = plain_draft_of(pub, limit)
            except Refused as error:
                self._reply(pending, place, wire.nok(error, pub.cmd_id))
                continue
            found = gathered.get(name)
            if found is None:
                gathered[name] = [draft], [place]
            elif (run[found[1][0]].n is None) == (pub.n is None):
                found[0].append(draft)
                found[1].append(place)
            else:  # in one entry either all publishes are numbered or none is
                items.append(self._gathered_entry(name, found, run, pending))
                gathered[name] = [draft], [place]
        items += [self._gathered_entry(name, found, run, pending) for name, found in gathered.items()]
        if items:
            names = tuple({entry.queue for entry, _ in items})
            self._make_busy(pending, names)
            self._propose(items, names)

    def _propose(self, items: list[Proposed], names: Sequence[str], *, together: bool = False) -> None:
        """Propose; queues that these entries create get their policies from this node's settings.

        `together`: one entry may name several queues.  Its index can be the id of only one new queue, so the others
        need entries of their own.
        """
        services = self._services
        if together or services.defaults is not None:
            missing = [name for name in names if not services.exists(name)]
            if services.defaults is not None or len(missing) > 1:
                policies = services.defaults or Policies()
                items[:0] = [(log.CreateQueue(name, policies), None) for name in missing]
        services.raft_log.tell(Propose(items))

    def _gathered_entry(self, name: str, found: Gathered, run: Sequence[Any], pending: Pending) -> Proposed:
        drafts, places = found
        numbered = run[places[0]].n is not None
        session = self._session if numbered else ""
        ordinals = [run[place].n for place in places] if numbered else ()
        entry = Publish(name, drafts, session=session, ordinals=ordinals, door=self._door.kind, worker=self._worker)
        return entry, Asker(self, pending, places if len(places) > 1 else places[0])

    def _whole(self, pub: wire.Pub, drafts: Sequence[Draft]) -> Publish:
        numbered = pub.n is not None and pub.id is None
        return Publish(
            pub.qname,
            drafts,
            atomic=True,
            id=pub.id or "",
            session=self._session if numbered else "",
            ordinals=(pub.n,) if numbered and pub.n is not None else (),
            door=self._door.kind,
            worker=self._worker,
        )

    # --- acknowledging ---------------------------------------------------------------------------------------------

    def _ack(self, run: Sequence[Any]) -> None:
        """Make one entry of all plain acknowledgements of a queue."""
        pending = self._begin(run)
        gathered: dict[str, list[int]] = {}
        items: list[Proposed] = []
        for place, command in enumerate(run):
            if command.uids is not None or command.publish is not None:
                for name in (command.qname, *(part.qname for part in command.publish or ())):
                    if name in gathered:  # keep the order: earlier acknowledgements first
                        self._ack_plain(name, gathered.pop(name), run, pending, items)
                self._ack_whole(command, pending, place, items)
            else:
                gathered.setdefault(command.qname, []).append(place)
        for name, places in gathered.items():
            self._ack_plain(name, places, run, pending, items)
        if items:
            acks = [entry for entry, _ in items if type(entry) is log.Ack]
            follow_ups = dict.fromkeys(publish.queue for ack in acks for publish in ack.publishes)  # in their order
            self._propose(items, tuple(follow_ups), together=True)

    def _ack_plain(
        self,
        name: str,
        places: list[int],
        run: Sequence[Any],
        pending: Pending,
        items: list[Proposed],
    ) -> None:
        uids, tokens, good = [], [], []
        for place in places:
            command = run[place]
            try:
                tokens.append(ANY_TOKEN if command.lease is None else token_of(command.lease))
            except BadField as error:
                self._reply(pending, place, wire.nok(error, command.cmd_id))
                continue
            uids.append(command.uid)
            good.append(place)
        if uids:
            entry = self._ack_entry(name, uids, tokens)
            items.append((entry, Asker(self, pending, good)))

    def _ack_entry(self, name: str, uids: list[str], tokens: list[Token], publishes: Sequence[Publish] = ()) -> log.Ack:
        queue_id, numbers = named_by(uids)
        foreign = {i: uids[i] for i, number in enumerate(numbers) if number < 0} if min(numbers) < 0 else {}
        self._queue(name).tell(Leaving(name, queue_id, [number for number in numbers if number > 0]))
        return log.Ack(
            name, queue_id, numbers, tokens, list(publishes), foreign, worker=self._worker, door=self._door.kind
        )

    def _ack_whole(self, command: wire.Ack, pending: Pending, place: int, items: list[Proposed]) -> None:
        """Make an entry of an acknowledgement of several messages, or of one with follow-ups."""
        limit = self._services.limits.message_bytes_max
        try:
            uids, tokens = settled_by(command)
            publishes = [
                Publish(
                    part.qname,
                    [draft_of(wire.followup_content(part), limit)],
                    atomic=True,
                    door=self._door.kind,
                    worker=self._worker,
                )
                for part in command.publish or ()
            ]
        except Refused as error:
            self._reply(pending, place, wire.nok(error, command.cmd_id))
            return
        if publishes:
            self._make_busy(pending, (command.qname, *{publish.queue for publish in publishes}))
        items.append((self._ack_entry(command.qname, uids, tokens, publishes), Asker(self, pending, place)))

    # --- queues --------------------------------------------------------------------------------------

    def _change_queue(self, run: Sequence[Any]) -> None:
        (command,) = run
        pending = self._begin(run)
        try:
            entry = queue_entry_of(command)
        except Refused as error:
            self._reply(pending, 0, wire.nok(error, command.cmd_id))
            return
        self._make_busy(pending, (command.qname,))
        logger.info("%s %s %s", self._who, type(command).__name__.upper(), command.qname or "the default queue")
        self._services.raft_log.tell(Propose([(entry, Asker(self, pending, 0))]))


def _by_queue(run: Sequence[wire.Pub], drafts: list[Draft]) -> dict[str, Gathered]:
    """Return the drafts of plain publishes and their places, by queue."""
    names = [pub.qname for pub in run]
    if names.count(names[0]) == len(names):
        return {names[0]: (drafts, list(range(len(run))))}
    gathered: dict[str, Gathered] = {}
    for place, (name, draft) in enumerate(zip(names, drafts, strict=True)):
        found = gathered.get(name)
        if found is None:
            gathered[name] = [draft], [place]
        else:
            found[0].append(draft)
            found[1].append(place)
    return gathered


def _is_whole(pub: wire.Pub) -> bool:
    return pub.id is not None or pub.messages is not None
