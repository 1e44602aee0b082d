"""Who hears that messages may be read now.

Each run of messages of one queue passes here, one by one where senders send one by one. So hardly anybody is told of
all: a timed or delayed message is news for those who deliver it later alone, and only a broker that copies another one
looks for topics that it was not told of.
"""

from collections.abc import Callable, Mapping

from bolide.broker.state import BrokerState
from bolide.store.dispatch import Arrival

Hear = Callable[[Arrival], None]


class Arrivals:
    """Tells what the store tells of; a message is stored by then, so a hearer keeps its troubles to itself."""

    def __init__(
        self, state: BrokerState, hearers: tuple[Hear, ...], of_topics: Mapping[str, Hear], of_copies: Hear
    ) -> None:
        """`hearers` are told of all, those `of_topics` of one topic, `of_copies` while another broker leads."""
        self._state = state
        self._mishaps = state.store.mishaps
        self._given = hearers, of_topics, of_copies
        state.role.listen(lambda old, new: self._follow_role())
        state.store.listen(self._tell)
        self._follow_role()

    def _follow_role(self) -> None:
        hearers, of_topics, of_copies = self._given
        self._hearers = (*hearers, of_copies) if self._state.is_slave else hearers
        self._hearers_of = {topic: (*self._hearers, hear) for topic, hear in of_topics.items()}

    def _tell(self, arrival: Arrival) -> None:
        hearers = self._hearers_of.get(arrival[0], self._hearers)
        self._mishaps.tell_all("broker.arrivals", hearers, arrival)
