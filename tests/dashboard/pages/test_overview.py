"""The overview: brokers, findings, and what is said when a broker is gone."""

from bolide.admin.admin import BrokerRow
from bolide.dashboard.history import History
from bolide.dashboard.pages.overview import days_left, disk_limit
from bolide.dashboard.walk import BrokerLook
from bolide.testing import cluster
from bolide.testing.blocking import Cluster
from tests.cli.inside import told
from tests.dashboard.site import Site, site


def test_brokers_are_the_rows_of_the_command(rocket: Cluster, pages: Site) -> None:
    pages.wait_for("/", lambda text: "reached from here" in text)
    (expected,) = told(rocket.namesrv, "cluster")
    shown = pages.rows("/")["brokers"]
    assert [{**row, "in_per_s": 0, "out_per_s": 0} for row in shown] == [
        {**row, "in_per_s": 0, "out_per_s": 0} for row in expected
    ]


def test_the_doctor_speaks_on_the_overview(pages: Site) -> None:
    pages.wait_for("/", lambda text: "says the doctor" in text or 'class="finding' in text)


def test_one_broker_of_two_is_gone_and_every_page_says_so_and_recovers() -> None:
    with cluster(brokers=2) as rocket, site(rocket.namesrv) as pages:
        rocket.create_topic("Spread", 2)
        pages.wait_for("/topics/Spread", lambda text: "partial" not in text)
        rocket.brokers[1].kill()
        for path in ("/", "/groups", "/topics", "/topics/Spread"):
            text = pages.wait_for(path, lambda text: 'class="note partial away"' in text)
            assert "1 of 2 brokers answered" in text, path
        rocket.brokers[1].start()
        for path in ("/", "/groups", "/topics", "/topics/Spread"):
            pages.wait_for(path, lambda text: 'class="note partial away"' not in text)


def test_a_cluster_that_does_not_answer_is_told_and_found_again() -> None:
    with cluster() as rocket:
        rocket.namesrvs[0].stop()
        with site(rocket.namesrv) as pages:
            answer = pages.content("/")
            assert answer.status_code == 502
            assert "no name server answers" in answer.text
            assert "bolide doctor" in answer.text
            rocket.namesrvs[0].start()
            pages.wait_for("/", lambda text: "reached from here" in text)


def test_a_disk_is_shown_beside_the_ratio_that_stops_sends(pages: Site) -> None:
    pages.wait_for("/", lambda text: "takes no more messages" in text and ">of 100%<" in text)  # that of these tests
    assert disk_limit({"diskSpaceWarningLevelRatio": "85"}) == 0.85
    assert disk_limit({}) == 0.9


def test_days_left_are_told_from_an_hour_of_history_and_not_before() -> None:
    status = {"commitLogDirCapacity": "Total : 20.0 GiB, Free : 10.0 GiB.", "commitLogMaxOffset": "0"}
    look = BrokerLook(BrokerRow("c", "b", 0, "127.0.0.1:1", "v", 0, 0, is_reachable=True), status)
    history = History()
    for minute in (0, 10, 30):
        history.add("broker", "127.0.0.1:1", minute * 60, (minute * 1e6,))
        assert days_left(history, look, minute * 60_000) is None
    for minute in range(40, 24 * 60, 5):
        history.add("broker", "127.0.0.1:1", minute * 60, (minute * 1e6,))
    assert days_left(history, look, 24 * 3_600_000) == 7  # 10 GiB at 1 MB a minute
