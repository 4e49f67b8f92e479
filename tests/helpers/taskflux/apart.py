"""TaskFlux readers and conversations join many packets in one value; the tests compare packet by packet.

[Packet | Bad], as they are said --> apart --> [Packet | Bad], one for each packet
"""

from collections.abc import Iterable

from wakeq.protocol.log.entries import Draft
from wakeq.protocol.wire.taskflux.commands import OK, Bad, Dequeues, Enqueues, Oks, Packet, Record, Taken


def taken_as(*records: Record) -> Taken:
    return Taken([record.id for record in records], [Draft(record.payload, record.key) for record in records])


def apart(said: Iterable[Packet | Bad]) -> list[Packet | Bad]:
    packets: list[Packet | Bad] = []
    for one in said:
        match one:
            case Enqueues() | Dequeues():
                packets += one.apart()
            case Oks(count=count):
                packets += [OK] * count
            case Taken():
                packets += [packet for record in one.records() for packet in (record, OK)]
            case _:
                packets.append(one)
    return packets
