"""The line above pages that do not refresh by themselves."""

from bolide.testing import cluster
from tests.dashboard.site import Site, site


def test_a_page_with_a_form_has_the_line_and_one_that_refreshes_has_its_own_note(pages: Site) -> None:
    assert 'hx-get="/state"' in pages.frame("/messages").text
    assert 'hx-get="/state"' not in pages.frame("/groups").text
    assert pages.text("/state").strip() == ""


def test_the_line_names_a_broker_that_is_silent_until_it_answers_again() -> None:
    with cluster(brokers=2) as rocket, site(rocket.namesrv) as pages:
        pages.wait_for("/groups", lambda text: "No group yet" in text)
        rocket.brokers[1].kill()
        text = pages.wait_for("/state", lambda text: "broker-1" in text)
        assert "1 of 2 brokers answered" in text
        assert len(pages.rows("/state")["silent"]) == 1
        rocket.brokers[1].start()
        pages.wait_for("/state", lambda text: not text.strip())
