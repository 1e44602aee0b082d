"""`bolide trace` and the moving of groups, as people and programs type them."""

import pytest

import bolide
from bolide.testing import cluster
from tests.cli.inside import run, told


@pytest.mark.feature("X17")
def test_the_way_of_a_message_is_shown_as_a_table_and_as_json() -> None:
    with cluster(settings={"traceTopicEnable": "true"}) as rocket:
        rocket.create_topic("Traced", 1)
        with bolide.Producer("shop", rocket.namesrv, trace=True) as producer:
            receipt = producer.send("Traced", b"two teas", keys="order-7", tags="drinks")
        with bolide.Producer("prankster", rocket.namesrv) as producer:
            producer.send("RMQ_SYS_TRACE_TOPIC", b"Pub\x01soon\x02", keys=["order-7", receipt.msg_id])
        oldest = bolide.StartFrom.oldest()
        with bolide.Consumer("kitchen", "Traced", rocket.namesrv, start_from=oldest, trace=True) as consumer:
            next(iter(consumer)).ack()
        ((found,),) = told(rocket.namesrv, "trace", "order-7")
        assert (found["message_id"], found["tags"], found["body_size"]) == (receipt.msg_id, "drinks", 8)
        assert [(step["what"], step["group"]) for step in found["steps"]] == [("sent", "shop"), ("consumed", "kitchen")]
        shown = run(rocket.namesrv, "trace", receipt.msg_id).stdout
        assert f"message {receipt.msg_id}" in shown
        lines = [line.split() for line in shown.splitlines()]
        assert any({"sent", "shop", "success", rocket.brokers[0].address} <= set(words) for words in lines)
        missing = run(rocket.namesrv, "trace", "nothing")
        assert missing.exit_code != 0
        assert "tell with trace=True" in missing.stderr


@pytest.mark.feature("F237")
def test_a_group_is_moved_skipped_and_cloned() -> None:
    with cluster() as rocket:
        rocket.create_topic("Moved", 2)
        with bolide.Producer("pg", rocket.namesrv) as producer:
            for _ in range(4):
                producer.send("Moved", b"x")
        with bolide.Consumer("g", "Moved", rocket.namesrv, start_from=bolide.StartFrom.oldest()) as consumer:
            assert len([next(consumer) for _ in range(4)]) == 4
            consumer.commit()
        words = ("group", "reset", "g", "--topic", "Moved")
        (plan,) = told(rocket.namesrv, *words, "--to", "earliest", "--dry-run")
        assert sum(row["change"] for row in plan) == -4
        assert "nothing was changed" in run(rocket.namesrv, *words, "--to", "0", "--dry-run").stdout
        (moved,) = told(rocket.namesrv, *words, "--to", "1", "--queue", "broker-0:1")
        assert [(row["queue"], row["to"]) for row in moved] == [(1, 1)]
        (skipped,) = told(rocket.namesrv, "group", "skip", "g", "--topic", "Moved")
        assert sum(row["to"] for row in skipped) == 4
        (copied,) = told(rocket.namesrv, "group", "clone", "g", "h")
        assert sum(row["offset"] for row in copied if row["topic"] == "Moved") == 4
        bad = run(rocket.namesrv, *words, "--to", "1", "--queue", "nonsense")
        assert "must be BROKER:NUMBER" in bad.stderr
