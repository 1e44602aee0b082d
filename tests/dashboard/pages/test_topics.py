"""Topics: the list, one topic, and making, changing and deleting them."""

import re

from bolide import Admin, Producer
from bolide.testing.blocking import Cluster
from tests.cli.inside import told
from tests.dashboard.site import Site


def test_the_list_has_what_each_topic_holds_and_the_rows_of_the_command(rocket: Cluster, pages: Site) -> None:
    rocket.create_topic("Listed", 4)
    with Producer("listing", rocket.namesrv) as producer:
        for _ in range(3):
            producer.send("Listed", b"x")

    def is_whole(text: str) -> bool:
        ages = re.findall(r">[^<]* ago</time>", text)  # of the oldest message and the last
        return '<td class="num">3</td>' in text and len(ages) == 2

    assert "4 / 4" in pages.wait_for("/topics", is_whole, q="Listed")
    assert pages.rows("/topics", q="Listed") == [{"topic": "Listed"}]


def test_json_of_a_topic_is_what_the_command_says(rocket: Cluster, pages: Site) -> None:
    rocket.create_topic("Alike", 2)
    (expected,) = told(rocket.namesrv, "topic", "show", "Alike")
    assert pages.rows("/topics/Alike") == expected
    assert len(expected) == 2


def test_a_topic_that_is_not_there_says_so_with_the_command_that_lists_them(pages: Site) -> None:
    answer = pages.content("/topics/Nowhere")
    assert answer.status_code == 404
    assert "bolide topic list" in answer.text
    assert "try again" in answer.text


def test_a_filter_that_finds_nothing_and_system_topics_behind_a_switch(pages: Site) -> None:
    assert "No topic has “nothing-like-it”" in pages.text("/topics", q="nothing-like-it")
    assert not pages.rows("/topics", q="SELF_TEST_TOPIC")
    pages.wait_for("/topics", lambda text: ">SELF_TEST_TOPIC<" in text, q="SELF_TEST", all="1")


def test_a_topic_is_created_changed_and_deleted_and_each_is_noted(rocket: Cluster, changing: Site) -> None:
    answer = changing.post("/topics/create", name="Made", queues="4", permission="6", type="NORMAL")
    assert (answer.status_code, answer.headers["location"]) == (303, "/topics/Made")
    with Admin(rocket.namesrv) as admin:
        assert {shape.write_queue_count for shape in admin.topic_shapes("Made").values()} == {4}
        with Producer("making", rocket.namesrv) as producer:
            for _ in range(8):
                producer.send("Made", b"x")
        assert "what it holds: 8 messages" in changing.text("/topics/Made/delete")
        preview = changing.text("/topics/Made/edit", queues="2", read="2", permission="4")
        assert "out of sight" in preview
        assert "read only" in preview
        changing.post("/topics/Made/edit", queues="2", read="2", permission="4")
        assert {str(shape) for shape in admin.topic_shapes("Made").values()} == {"2 queues, read only"}
        wrong = changing.post("/topics/Made/delete", typed="made")
        assert wrong.status_code == 502
        assert "nothing was deleted" in wrong.text
        assert admin.topic_shapes("Made")
        assert changing.post("/topics/Made/delete", typed="Made").headers["location"] == "/topics"
        assert not admin.topic_shapes("Made")


def test_a_topic_is_made_on_one_broker_alone_where_that_is_chosen(rocket: Cluster, changing: Site) -> None:
    broker = rocket.brokers[0].name
    changing.wait_for("/topics/create", lambda text: f">every broker ({broker})<" in text)
    form = {"queues": "1", "permission": "6", "type": "NORMAL"}
    assert changing.post("/topics/create", name="Here", broker=broker, **form).status_code == 303
    assert (
        "there is no broker elsewhere" in changing.post("/topics/create", name="There", broker="elsewhere", **form).text
    )
    with Admin(rocket.namesrv) as admin:
        assert admin.topic_shapes("Here")
        assert not admin.topic_shapes("There")


def test_a_name_is_judged_while_it_is_typed_by_the_real_rules(pages: Site) -> None:
    assert "this name is free" in pages.text("/topics/check", name="Free_Name")
    assert 'class="bad"' in pages.text("/topics/check", name="has space")
    assert 'class="bad"' in pages.text("/topics/check", name="x" * 200)


def test_the_frame_comes_without_asking_the_cluster_and_names_the_page(pages: Site) -> None:
    answer = pages.frame("/topics/Any%2Fname?span=6h")
    assert answer.status_code == 200
    assert "<h1>Any/name</h1>" in answer.text
    assert 'hx-get="/topics/Any%2Fname?span=6h"' in answer.text
