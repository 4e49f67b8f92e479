"""`wakeq cluster`: the commands for a cluster's operator, over the worker protocol."""

import time
from pathlib import Path
from typing import Any

import click

from wakeq.cli.broker.trial import trial
from wakeq.cli.common import Broker, confirm, json_option, yes_option
from wakeq.cli.output import print_facts, print_json, print_table, say
from wakeq.protocol.errors import BrokerUnreachable, Disconnected, NoQuorum
from wakeq.storage.cluster_secret import make_secret, write_secret

MEMBER_COLUMNS = ("node", "address", "votes", "is_connected", "behind_bytes")
NODE = click.IntRange(min=0)
TRANSFER_S_MAX = 5.0
POLL_S = 0.05


@click.group()
def cluster() -> None:
    """Show a cluster, add and remove nodes, choose the leader."""


cluster.add_command(trial)


@cluster.command()
@json_option
@click.pass_obj
def status(broker: Broker, as_json: bool) -> None:
    """Show the cluster as the node at --broker sees it.

    If --broker names several nodes, the leader is asked, or if none leads, the first that answers.  Only the
    leader knows how far behind the others are.
    """
    facts = _known_to(broker)
    if as_json:
        print_json(facts)
        return
    members: list[dict[str, Any]] = facts.pop("members")
    print_facts(facts)
    print_table(MEMBER_COLUMNS, ([member[column] for column in MEMBER_COLUMNS] for member in members))


def _known_to(broker: Broker) -> dict[str, Any]:
    """Return the facts of the leader among the named nodes, or of the first node that answers."""
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
    """Make NODE, or the most advanced node, the leader."""
    with broker.connect() as client:
        successor = client.cluster("transfer", node=node)["transferring_to"]
        until_s = time.monotonic() + TRANSFER_S_MAX
        while client.cluster()["leader"] != successor:
            if time.monotonic() > until_s:
                raise NoQuorum(
                    f"node {successor} does not lead yet after {TRANSFER_S_MAX:g} s; see `wakeq cluster status`"
                )
            time.sleep(POLL_S)
    print_json({"leader": successor}) if as_json else click.echo(f"node {successor} leads")


@cluster.command()
@click.argument("node", type=NODE)
@click.argument("address", metavar="HOST:PORT")
@json_option
@click.pass_obj
def add(broker: Broker, node: int, address: str, as_json: bool) -> None:
    """Add NODE, which the other nodes reach at HOST:PORT.

    It votes once it has caught up.  Start it with --join.
    """
    with broker.connect() as client:
        facts = client.cluster("add", node=node, address=address)
    print_json(facts) if as_json else click.echo(f"node {node} is a member; it votes once it has caught up")


@cluster.command()
@click.argument("node", type=NODE)
@json_option
@yes_option
@click.pass_obj
def remove(broker: Broker, node: int, as_json: bool, yes: bool) -> None:
    """Remove NODE from the cluster."""
    confirm(f"Remove node {node} from the cluster?", yes=yes)
    with broker.connect() as client:
        facts = client.cluster("remove", node=node)
    print_json(facts) if as_json else click.echo(f"node {node} was removed; shut it down if it is still running")


@cluster.command()
@json_option
@click.pass_obj
def snapshot(broker: Broker, as_json: bool) -> None:
    """Write a snapshot of the node at --broker now, and trim its log."""
    with broker.connect() as client:
        facts = client.cluster("snapshot")
    print_json(facts) if as_json else click.echo(f"snapshot written, up to entry {facts['index']} of the log")


@cluster.command()
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write it to this new file, which only its owner can read; default: print it.",
)
def secret(out: Path | None) -> None:
    """Make a secret that the nodes prove to each other.

    Every node gets the same one, in the setting cluster.secret_file.
    """
    if out is None:
        click.echo(make_secret())
    else:
        write_secret(out)
        say(f"{out}: copy this file to every node, and set cluster.secret_file to it")


@cluster.command()
@click.option("--data-dir", type=click.Path(path_type=Path), required=True, help="The data directory of this node.")
@click.option(
    "--from-this-node",
    is_flag=True,
    required=True,
    help="Required, to confirm that data which only the other nodes had is lost.",
)
@yes_option
def recover(data_dir: Path, from_this_node: bool, yes: bool) -> None:
    """Continue with this node alone after a majority was lost.

    Data that was confirmed but had not reached this node is lost.  Never start the other nodes again with their old
    data.
    """
    confirm("Is a majority of the nodes lost for good, and should this node continue alone?", yes=yes)
    from wakeq.data.recover import recover_alone

    click.echo(recover_alone(data_dir))
