"""What was seen is kept for a day, in arrays that have an end."""

from bolide.dashboard.history import History, Ring, direction


def test_a_ring_keeps_the_first_of_each_step_and_the_newest_steps() -> None:
    ring = Ring(step_s=15, count_max=4, width=1)
    for at_s in range(0, 120, 5):
        ring.add(at_s, (at_s * 2.0,))
    times, values = ring.columns(0)
    assert times == [60, 75, 90, 105]
    assert values == [120, 150, 180, 210]
    assert ring.columns(80)[0] == [90, 105]


def test_a_day_of_looks_is_kept_in_three_spans_each_with_its_step() -> None:
    history = History()
    for at_s in range(0, 86_400 + 15, 15):
        history.add("group", "g", at_s, (1.0, 2.0))
    lengths = {span: len(history.columns("group", "g", span, 86_400)[0]) for span in ("1h", "6h", "24h")}
    assert lengths == {"1h": 240, "6h": 360, "24h": 288}
    assert history.columns("group", "other", "1h", 0) == []


def test_the_series_that_was_silent_for_longest_makes_room_for_an_active_one() -> None:
    history = History(series_max=2)
    history.add("group", "idle", 1, (0.0,), is_active=False)
    history.add("group", "busy", 1, (5.0,))
    history.add("group", "busy", 20, (5.0,))
    history.add("group", "another idle one", 30, (0.0,), is_active=False)
    assert history.count("group") == 2
    assert history.columns("group", "another idle one", "1h", 30) == []
    history.add("group", "new and busy", 31, (1.0,))
    assert history.count("group") == 2
    assert history.columns("group", "idle", "1h", 31) == []
    assert history.columns("group", "busy", "1h", 31) != []


def test_who_makes_room_is_looked_for_once_however_many_have_none() -> None:
    history = History(series_max=100)
    for name in range(100):
        history.add("group", f"idle {name}", 1, (0.0,), is_active=name < 60)
    for name in range(100):
        history.add("group", f"busy {name}", 2, (1.0,))
    assert history.count("group") == 100
    history.add("group", "one more", 2, (1.0,))
    assert history.columns("group", "one more", "1h", 2) == []
    assert all(history.columns("group", f"busy {name}", "1h", 2) for name in range(100))
    history.add("group", "later", 3, (1.0,))
    assert history.columns("group", "later", "1h", 3) != []


def test_a_trend_says_where_a_number_goes() -> None:
    assert direction([0, 0, 50, 100]) == "growing"
    assert direction([100, 80, 40, 10]) == "shrinking"
    assert direction([100, 99, 101, 100]) == "steady"
    assert direction([0, 0, 0]) == "steady"
    assert direction([3]) == ""


def test_a_trend_is_thinned_and_ends_with_the_newest_point() -> None:
    history = History()
    for at_s in range(0, 3600, 15):
        history.add("group", "g", at_s, (float(at_s),))
    trend = history.trend("group", "g", 3600, count_max=60)
    assert len(trend.points) == 60
    assert trend.points[-1] == 3585
    assert trend.word == "growing"
