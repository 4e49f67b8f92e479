"""The exchange: who wants which messages.

    subscribe, unsubscribe, leave --> Exchange
    (spec, type) of a message --> subscribers, each once, after four look-ups whatever the number of subscriptions

A subscriber is anything that can be a key.  Order is that of subscribing, so that equal histories give equal results.
Must never look at a message, or keep anything about a subscriber that has left.
"""

from collections.abc import Hashable, Iterable
from typing import Annotated, Generic, TypeVar

from msgspec import Meta, Struct

from wakeq.protocol.errors import TooLarge

ANY = "*"  # as the whole of a spec or type; anywhere else it is a star
SUBSCRIPTION_CHARS_MAX = 255  # of each half
SUBSCRIPTIONS_MAX = 1000  # of one subscriber

Half = Annotated[str, Meta(max_length=SUBSCRIPTION_CHARS_MAX)]
Subscriber = TypeVar("Subscriber", bound=Hashable)


class Subscription(Struct, frozen=True, gc=False):
    """Messages of this spec and type; either may be ANY."""

    spec: Half
    type: Half


class TooManySubscriptions(TooLarge):
    """One subscriber wants to have more subscriptions than are kept for it."""


class Exchange(Generic[Subscriber]):
    """See the head of this file.  Subscriptions of one subscriber are a set."""

    __slots__ = ("_subscribers", "_subscriptions", "size")

    def __init__(self) -> None:
        self.size = 0  # subscriptions of all subscribers together
        # Both are the same relation, from either side.  No inner dict is empty; their values say nothing.
        self._subscribers: dict[Subscription, dict[Subscriber, None]] = {}
        self._subscriptions: dict[Subscriber, dict[Subscription, None]] = {}

    def subscribe(self, subscriber: Subscriber, wanted: Iterable[Subscription]) -> None:
        """Add all of these, or raise TooManySubscriptions and add none.  What is there already is not added again."""
        before = self._subscriptions.get(subscriber, {})
        added = [subscription for subscription in dict.fromkeys(wanted) if subscription not in before]
        if len(before) + len(added) > SUBSCRIPTIONS_MAX:
            raise TooManySubscriptions(
                f"these would make {len(before) + len(added)} subscriptions of one connection, at most "
                f"{SUBSCRIPTIONS_MAX} are allowed; unsubscribe, or use {ANY}"
            )
        for subscription in added:
            self._subscriptions.setdefault(subscriber, {})[subscription] = None
            self._subscribers.setdefault(subscription, {})[subscriber] = None
        self.size += len(added)

    def unsubscribe(self, subscriber: Subscriber, unwanted: Iterable[Subscription]) -> None:
        """Remove just these: a subscription that would cover them stays.  What is not there is no error."""
        own = self._subscriptions.get(subscriber, {})
        for subscription in unwanted:
            if subscription in own:
                del own[subscription]
                self._remove(subscriber, subscription)
        if not own:
            self._subscriptions.pop(subscriber, None)

    def leave(self, subscriber: Subscriber) -> None:
        """Forget the subscriber."""
        for subscription in self._subscriptions.pop(subscriber, {}):
            self._remove(subscriber, subscription)

    def count_of(self, subscriber: Subscriber) -> int:
        """Return how many subscriptions it has."""
        return len(self._subscriptions.get(subscriber, ()))

    def subscribers(self, spec: str, type: str) -> list[Subscriber]:
        """Return who gets a message of this spec and type, each once."""
        found: list[dict[Subscriber, None]] = []
        for half in (spec, ANY):
            for other_half in (type, ANY):
                subscribers = self._subscribers.get(Subscription(half, other_half))
                if subscribers:
                    found.append(subscribers)
        if len(found) == 1:  # the usual case: nobody can be named twice
            return list(found[0])
        return list({subscriber: None for subscribers in found for subscriber in subscribers})

    def _remove(self, subscriber: Subscriber, subscription: Subscription) -> None:
        self.size -= 1
        subscribers = self._subscribers[subscription]
        del subscribers[subscriber]
        if not subscribers:
            del self._subscribers[subscription]
