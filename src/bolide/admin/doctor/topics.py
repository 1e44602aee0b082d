"""What is judged of topics."""

from collections.abc import Iterator

from bolide.admin.doctor.facts import Facts
from bolide.admin.doctor.findings import ERROR, WARNING, Fault, finds
from bolide.model.texts import counted


@finds("D02")
def no_route(facts: Facts) -> Iterator[Fault]:
    """A topic that was asked about has no route, and why."""
    for topic in facts.topics:
        if not topic.shapes:
            yield (
                ERROR,
                topic.why_absent or f"topic {topic.name} has no route",
                "nobody can send to it or read it",
                f"bolide topic create {topic.name}",
            )


@finds("D10")
def one_sided(facts: Facts) -> Iterator[Fault]:
    """A topic is on one broker of several."""
    clusters = {broker.name: broker.cluster for broker in facts.brokers if not broker.problem}
    for topic in facts.topics:
        have = {shape.broker for shape in topic.shapes}
        meant = {clusters[name] for name in have if name in clusters}
        missing = {name for name, cluster in clusters.items() if cluster in meant} - have
        if have and missing:
            yield (
                WARNING,
                f"topic {topic.name} is on {', '.join(sorted(have))} and not on {', '.join(sorted(missing))}",
                "when that broker is away, nobody can send",
                f"bolide topic create {topic.name}",
            )


@finds("D19")
def shapes(facts: Facts) -> Iterator[Fault]:
    """Fewer queues to read than to write, nothing to write to, or more members than queues."""
    queue_counts: dict[str, int] = {}
    for topic in facts.topics:
        for shape in topic.shapes:
            queue_counts[topic.name] = queue_counts.get(topic.name, 0) + shape.read_count
            if shape.read_count < shape.write_count:
                yield (
                    ERROR,
                    f"{topic.name} on {shape.broker}: {counted(shape.write_count, 'queue')} to write, "
                    f"{shape.read_count} to read",
                    "what is sent to the others is read by nobody",
                    f"bolide topic set {topic.name} --queues {shape.write_count}",
                )
            if not shape.write_count or not shape.permission & 2:
                yield (
                    WARNING,
                    f"topic {topic.name} on {shape.broker} takes no messages",
                    "senders fail there",
                    f"bolide topic set {topic.name} --perm 6",
                )
    for group in facts.groups:
        topics = {each.topic for each in group.queues if not each.topic.startswith("%RETRY%")}
        most = max((queue_counts.get(topic, 0) for topic in topics), default=0)
        if most and len(group.members) > most:
            yield (
                WARNING,
                f"group {group.name} has {counted(len(group.members), 'member')} for {counted(most, 'queue')}",
                "those beyond get nothing",
                "more queues, or fewer members",
            )
