"""Reloading: what SIGHUP does to a running node: settings and certificates are read again.

    SIGHUP --> file and environment --> what can be taken now is; of the rest the log says that it waits for a start

Whatever is wrong with the new leaves everything as it is, and is logged.
"""

import logging
from collections.abc import Callable

from wakeq.config.layers import reloaded
from wakeq.config.settings import Settings
from wakeq.protocol.errors import WakeqError

logger = logging.getLogger("wakeq.reloading")


def reload(running: Settings, load: Callable[[], Settings], take: Callable[[Settings], None]) -> None:
    """Load again, and have the node take what it can."""
    try:
        settings, waiting = reloaded(running, load())
        take(settings)
    except WakeqError as error:
        logger.error("nothing is changed: %s", error)
        return
    for name in waiting:
        logger.warning("%s has changed, and is taken at the next start", name)
    logger.info("the settings and certificates were read again")
