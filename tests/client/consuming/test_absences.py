"""When a member says that it waits for a topic."""

import pytest

from bolide.client.consuming.absences import PATIENCE_S, Absences


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_a_topic_that_stays_away_is_told_of_once_and_one_that_comes_at_once_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    absences = Absences("g")
    for topic in ("Now", "Never", "%RETRY%g"):
        absences.note(topic, 10.0)
    absences.end("Now")  # its first message has just made it
    for looks in range(1, 4):
        for topic in ("Never", "%RETRY%g"):
            absences.note(topic, 10.0 + looks * PATIENCE_S)
    assert told(caplog) == ["topic has no route, waiting for it: topic=Never group=g"]


def test_one_that_goes_again_has_its_patience_again(caplog: pytest.LogCaptureFixture) -> None:
    absences = Absences("g")
    for begin_s in (10.0, 20.0):
        absences.note("T", begin_s)
        absences.note("T", begin_s + PATIENCE_S / 2)
        count = len(told(caplog))
        absences.note("T", begin_s + PATIENCE_S)
        assert len(told(caplog)) == count + 1
        absences.end("T")
