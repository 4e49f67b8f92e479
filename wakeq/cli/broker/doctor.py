"""`wakeq doctor`: checks a machine for problems that a broker would have on it."""

from typing import Any

import click

from wakeq.cli.broker.serve import given_settings, settings_options
from wakeq.cli.common import EXIT_FAILED, json_option
from wakeq.cli.output import print_json, print_table


@click.command()
@settings_options
@json_option
def doctor(*, as_json: bool, **given: Any) -> int:
    """Check this machine before a broker is started on it.

    Checks ports, disk, sync speed, clock, limits and versions.  Takes the flags of `wakeq serve`.  Exit status 1 if
    something must be fixed first; notes do not count.
    """
    loaded = given_settings(**given)
    from wakeq.node.doctor import examine, is_bad

    findings = list(examine(loaded.settings))
    if as_json:
        print_json({"findings": [finding._asdict() for finding in findings]})
    else:
        print_table(("", "what", "found"), findings)
    return EXIT_FAILED if is_bad(findings) else 0
