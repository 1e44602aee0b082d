"""Sessions end, make room, and are nobody else's."""

from bolide.dashboard.sessions import COUNT_MAX, IDLE_S, Sessions
from bolide.testing.blocking import Cluster
from tests.dashboard.clocks import HeldClock
from tests.dashboard.site import site


def test_a_session_is_found_by_its_id_alone() -> None:
    sessions = Sessions(HeldClock())
    one, other = sessions.begin("ada"), sessions.begin()
    assert sessions.find(one.id) is one
    assert sessions.find(None) is None
    assert sessions.find("x") is None
    assert one.owns(one.token)
    assert not one.owns(other.token)
    assert not one.owns("")
    assert len({one.id, one.token, other.id, other.token}) == 4
    assert len(one.id) >= 43, "256 bits"


def test_a_session_that_was_idle_for_eight_hours_is_gone_and_one_in_use_is_not() -> None:
    clock = HeldClock()
    sessions = Sessions(clock)
    used, idle = sessions.begin(), sessions.begin()
    clock.now_s += IDLE_S - 1
    assert sessions.find(used.id) is used
    clock.now_s += 2
    assert sessions.find(used.id) is used
    assert sessions.find(idle.id) is None


def test_the_session_unseen_for_longest_makes_room() -> None:
    sessions = Sessions(HeldClock())
    first, second = sessions.begin(), sessions.begin()
    for _ in range(COUNT_MAX - 2):
        sessions.begin()
    assert sessions.find(first.id) is first
    sessions.begin()
    assert sessions.find(second.id) is None
    assert sessions.find(first.id) is first


def test_a_flood_of_visitors_signs_nobody_out() -> None:
    sessions = Sessions(HeldClock())
    signed_in = sessions.begin("ada")
    for _ in range(COUNT_MAX + 10):
        sessions.begin()
    assert sessions.find(signed_in.id) is signed_in


def test_the_cookie_is_for_no_script_no_other_site_and_under_tls_for_tls_alone(rocket: Cluster) -> None:
    with site(rocket.namesrv) as plain, site(rocket.namesrv, public_url="https://mq.example.org") as secure:
        told = plain.frame("/topics").headers["set-cookie"].lower()
        assert "httponly" in told
        assert "samesite=strict" in told
        assert "secure" not in told
        assert "secure" in secure.frame("/topics").headers["set-cookie"].lower()


def test_a_link_on_another_site_takes_no_session_away(rocket: Cluster) -> None:
    with site(rocket.namesrv) as found:
        headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
        answer = found.client.get("/topics?q=a", headers=headers)
        assert "set-cookie" not in answer.headers
        assert 'content="0; url=/topics?q=a"' in answer.text
