"""Dead letters as they come about: a consumer gives messages up, with a reason."""

from collections.abc import Mapping

from bolide import Consumer, Producer, StartFrom


def bury(namesrv: str, group: str, topic: str, letters: Mapping[str, str]) -> None:
    """Have a group give up a message for each key, for the reason under it."""
    with (
        Producer(f"{group}-sender", namesrv) as producer,
        Consumer(group, {topic: "doomed"}, namesrv, start_from=StartFrom.oldest()) as consumer,
    ):
        for number, key in enumerate(letters):
            producer.send(topic, b"letter %d" % number, keys=[key], tags="doomed")
        left = set(letters)
        for message in consumer:
            key = message.keys[0]
            message.dead_letter(letters[key])
            left.discard(key)
            if not left:
                break
