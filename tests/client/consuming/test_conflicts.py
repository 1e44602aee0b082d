"""A consumer that wants something else than its mates hears of it, and an administrator sees it."""

import pytest

import bolide
from bolide import aio
from bolide.testing import cluster, run
from tests.cli.inside import run as run_command
from tests.cli.inside import told
from tests.client.scenes import client_clock, on_uvloop, stage


def test_a_refused_consumer_raises_at_its_start() -> None:
    async def scenario() -> None:
        async with (
            stage(settings={"bolideRefuseSubscriptionConflict": "true"}) as rocket,
            aio.Consumer("g", {"T": "A"}, rocket.namesrv, clock=client_clock()) as first,
        ):
            with pytest.raises(aio.ClientError, match="of topic T it wants B, its mate A") as caught:
                await aio.Consumer("g", {"T": "B"}, rocket.namesrv, clock=client_clock()).start()
            assert caught.value.code == 16
            assert first.subscriber.client_id in str(caught.value)
            async with aio.Consumer("g", {"T": "A"}, rocket.namesrv, clock=client_clock()):
                pass

    run(scenario())


@on_uvloop
async def test_members_and_their_differences_are_told_by_themselves() -> None:
    async with (
        stage() as rocket,
        aio.Consumer("g", {"T": "A || B"}, rocket.namesrv) as first,
        aio.Consumer("g", {"T": "C"}, rocket.namesrv) as second,
        aio.Admin(rocket.namesrv) as admin,
    ):
        rows = {row.client_id: row for row in await admin.member_rows("g")}
        assert rows.keys() == {first.subscriber.client_id, second.subscriber.client_id}
        (odd,) = [row for row in rows.values() if row.differences]
        assert {odd.mate, odd.client_id} == rows.keys()
        assert odd.differences[0].topic == "T"
        assert {odd.differences[0].ours, odd.differences[0].theirs} == {"A || B", "C"}
        (group,) = await admin.group_rows()
        assert (group.member_count, group.has_conflict) == (2, True)


def test_a_conflict_is_shown_in_the_shell() -> None:
    with cluster() as rocket:
        rocket.create_topic("T", 1)
        with (
            bolide.Consumer("g", {"T": "A"}, rocket.namesrv),
            bolide.Consumer("g", {"T": "B"}, rocket.namesrv),
        ):
            (rows,) = told(rocket.namesrv, "group", "list")
            assert [row["subscriptions"] for row in rows if row["group"] == "g"] == ["conflict"]
            (rows,) = told(rocket.namesrv, "group", "show", "g")
            assert {row["wants"] for row in rows} == {"T: A", "T: B"}
            assert len([row for row in rows if row["conflict"]]) == 1
            assert "do not want the same" in run_command(rocket.namesrv, "group", "show", "g").stdout
