"""The brokers that can be measured, by name.  A new one is a module here with a Peer in it, and a line
below."""

from bench.peers.beanstalkd import BeanstalkdEach, BeanstalkdLazy, ToyGroup
from bench.peers.job_libraries.libraries import Celery, Dramatiq, Huey, Rq
from bench.peers.peer import Peer
from bench.peers.rabbitmq import RabbitClassic, RabbitQuorum
from bench.peers.redis import RedisList
from bench.peers.wakeq import Wakeq, WakeqNumbered, WakeqThree

PEERS: dict[str, type[Peer]] = {
    peer.name: peer
    for peer in (
        Wakeq,
        WakeqNumbered,
        WakeqThree,
        ToyGroup,
        BeanstalkdEach,
        BeanstalkdLazy,
        RedisList,
        RabbitQuorum,
        RabbitClassic,
        Huey,
        Dramatiq,
        Celery,
        Rq,
    )
}

__all__ = ["PEERS", "Peer"]
