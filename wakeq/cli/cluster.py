"""`wakeq cluster`: the verbs of a cluster's operator.  Whatever is done here goes over the worker protocol."""

import time
from pathlib import Path
from typing import Any

import click

from wakeq.cli.common import Broker, confirm, json_option, yes_option
from wakeq.cli.output import print_facts, print_json, print_table
from wakeq.cli.trial import trial
from wakeq.protocol.errors import BrokerUnreachable, Disconnected, NoQuorum

MEMBER_COLUMNS = ("node", "address", "votes", "is_connected", "behind_bytes", "level")
NODE = click.IntRange(min=0)
TRANSFER_S_MAX = 5.0
LOOK_AGAIN_S = 0.05


@click.group()
def cluster() -> None:
    """Look at a cluster, let it grow and shrink, choose who leads it."""


cluster.add_command(trial)


@cluster.command()
@json_option
@click.pass_obj
def status(broker: Broker, as_json: bool) -> None:
    """Show what the node at --broker knows; how far the others are, only the leader knows.

    Of several nodes at --broker it is the one that leads; if none does, the first that answers.
    """
    facts = _known_to(broker)
    if as_json:
        print_json(facts)
        return
    members: list[dict[str, Any]] = facts.pop("members")
    print_facts(facts)
    print_table(MEMBER_COLUMNS, ([member[column] for column in MEMBER_COLUMNS] for member in members))


def _known_to(broker: Broker) -> dict[str, Any]:
    """What the node knows that leads, of those that are named, or the first that answers."""
    answers: list[dict[str, Any]] = []
    failures: list[BrokerUnreachable | Disconnected] = []
    for address in broker.addresses:
        try:
            with Broker(address).connect() as client:
                answers.append(client.cluster())
        except (BrokerUnreachable, Disconnected) as error:
            failures.append(error)
            continue
        if answers[-1]["serves"]:
            return answers[-1]
    if not answers:
        raise failures[-1]
    return answers[0]


@cluster.command()
@click.argument("node", type=NODE, required=False)
@json_option
@click.pass_obj
def transfer(broker: Broker, node: int | None, as_json: bool) -> None:
    """Let NODE lead, or whichever other node is furthest; return when it does."""
    with broker.connect() as client:
        heir = client.cluster("transfer", node=node)["transferring_to"]
        until_s = time.monotonic() + TRANSFER_S_MAX
        while client.cluster()["leader"] != heir:
            if time.monotonic() > until_s:
                raise NoQuorum(f"node {heir} does not lead after {TRANSFER_S_MAX:g} s; see `wakeq cluster status`")
            time.sleep(LOOK_AGAIN_S)
    print_json({"leader": heir}) if as_json else click.echo(f"node {heir} leads")


@cluster.command()
@click.argument("node", type=NODE)
@click.argument("address", metavar="HOST:PORT")
@json_option
@click.pass_obj
def add(broker: Broker, node: int, address: str, as_json: bool) -> None:
    """Let NODE belong to the cluster; HOST:PORT is where the others reach it.

    It listens first, and votes once it has caught up.  Start it with --join.
    """
    with broker.connect() as client:
        facts = client.cluster("add", node=node, address=address)
    print_json(facts) if as_json else click.echo(f"node {node} belongs to the cluster; it votes once it has caught up")


@cluster.command()
@click.argument("node", type=NODE)
@json_option
@yes_option
@click.pass_obj
def remove(broker: Broker, node: int, as_json: bool, yes: bool) -> None:
    """Let NODE no longer belong to the cluster."""
    confirm(f"Remove node {node} from the cluster?", yes=yes)
    with broker.connect() as client:
        facts = client.cluster("remove", node=node)
    print_json(facts) if as_json else click.echo(f"node {node} is removed; stop it, if it still runs")


@cluster.command()
@json_option
@click.pass_obj
def snapshot(broker: Broker, as_json: bool) -> None:
    """Have the node at --broker write an image of its state now, and cut its log behind it."""
    with broker.connect() as client:
        facts = client.cluster("snapshot")
    print_json(facts) if as_json else click.echo(f"there is an image of the state as of entry {facts['index']}")


@cluster.command()
@click.option("--data-dir", type=click.Path(path_type=Path), required=True, help="The data directory of this node.")
@click.option("--from-this-node", is_flag=True, required=True, help="Yes: all that other nodes had more is lost.")
@yes_option
def recover(data_dir: Path, from_this_node: bool, yes: bool) -> None:
    """Go on alone after a majority was lost for ever, with what this node has.

    Whatever was answered but had not reached this node is lost.  The other nodes must never be started again with
    their data.
    """
    confirm("All nodes of the majority are lost for ever, and this one goes on alone?", yes=yes)
    from wakeq.recovering import recover_alone

    click.echo(recover_alone(data_dir))
