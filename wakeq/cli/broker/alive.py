"""`wakeq alive`: checks that the broker of these settings, on this machine, is alive: a probe for containers.

    settings --> its HTTP address --> GET /livez --> exit status

It uses no proxy, sends no token, and accepts any name in the certificate, because the answer contains no secret.
"""

import ssl
from contextlib import closing
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any

import click

from wakeq.cli.broker.serve import given_settings, settings_options
from wakeq.config.settings import Settings
from wakeq.protocol.errors import BadSettings, BrokerUnreachable

ANSWER_S_MAX = 2.0
# Addresses at which a broker answers that listens on all addresses.
LOOPBACKS = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


@click.command()
@settings_options
def alive(**given: Any) -> None:
    """Check that the broker on this machine is alive.

    A liveness probe for containers.  Takes the flags of `wakeq serve`, to know where the broker listens.  It fails if
    the broker does not answer within 2 s; a broker that is still reading its log does not listen yet.
    """
    settings = given_settings(**given).settings
    if not settings.http_port:
        raise BadSettings("http_port 0 means a different port at each start; choose a fixed one")
    where = f"{settings.host} port {settings.http_port}"
    try:
        status = _asked(settings)
    except (OSError, HTTPException) as error:
        raise BrokerUnreachable(f"no broker answers on {where} ({error}); see its log") from error
    if status != 200:
        raise BrokerUnreachable(f"{where} answers /livez with status {status}; is that a broker?")
    click.echo("alive")


def _asked(settings: Settings) -> int:
    """Return the HTTP status of /livez."""
    host = LOOPBACKS.get(settings.host, settings.host)
    connection = HTTPConnection(host, settings.http_port, timeout=ANSWER_S_MAX)
    if settings.tls.cert_file is not None:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = HTTPSConnection(host, settings.http_port, timeout=ANSWER_S_MAX, context=context)
    with closing(connection):
        connection.request("GET", "/livez")
        return connection.getresponse().status
