"""How long does each list page of the dashboard take on a large cluster, and what does the walk behind it cost brokers?

Two thousand topics with a message in each queue, two and a half thousand groups that have read none of them, three
brokers as processes of their own; the dashboard in this one. The first visit of a page is told apart: it asks what the
walk has not seen yet. CPU is the dashboard's, a page, walks beside it included; on a busy machine trust it and not the
time. It does not show: how quick a browser draws the page, and groups with thousands of members.
"""

import argparse
import asyncio
import time
from pathlib import Path

from starlette.testclient import TestClient

from bolide.admin.admin import Admin
from bolide.admin.calls import gathered
from bolide.aio import Producer
from bolide.clock import SystemClock
from bolide.dashboard.app import build_app
from bolide.dashboard.config import DashboardConfig
from bolide.protocol.bodies import GroupConfig
from bolide.testing import cluster

PATHS = (
    "/",
    "/topics",
    "/topics?order=behind",
    "/groups",
    "/groups?order=name&page=20",
    "/dead",
    "/clients",
    "/search?q=topic-19",
)
_TICKS_A_SECOND = 100
_FILL_LIMIT_S = 60.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=2000)
    parser.add_argument("--groups", type=int, default=2500)
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with cluster(brokers=options.brokers, processes=True, settings={"mappedFileSizeConsumeQueue": "2000"}) as rocket:
        asyncio.run(fill(rocket.namesrv, options.topics, options.groups))
        config = DashboardConfig(namesrv=rocket.namesrv, walk_interval_s=5.0)
        with TestClient(build_app(config, SystemClock()), base_url="http://127.0.0.1:8082") as client:
            measure(client, options.rounds, [node.pid for node in rocket.brokers])


async def fill(namesrv: str, topics: int, groups: int) -> None:
    """Topics of one queue on every broker, and groups that are nobody's but have an offset each."""
    async with Admin(namesrv) as admin:

        async def group(number: int) -> None:
            await admin.set_group(GroupConfig(group_name=f"group-{number}"))
            await admin.reset_group(f"group-{number}", f"topic-{number % topics}", offset=0)

        made = await gathered({n: admin.create_topic(f"topic-{n}", 1) for n in range(topics)}, _FILL_LIMIT_S)
        joined = await gathered({n: group(n) for n in range(groups)}, _FILL_LIMIT_S)
        async with Producer("fill", namesrv) as producer:
            await gathered({n: producer.send(f"topic-{n}", b"x") for n in range(topics)}, _FILL_LIMIT_S)
        failed = [problem for problem in (*made.values(), *joined.values()) if isinstance(problem, BaseException)]
        assert not failed, failed[0]


def measure(client: TestClient, rounds: int, pids: list[int]) -> None:
    headers = {"HX-Request": "true"}
    client.get("/groups", headers=headers)  # waits for the first walk
    for path in PATHS:
        taken, used_s = [], time.process_time()
        for _ in range(rounds + 1):
            began = time.perf_counter()
            answer = client.get(path, headers=headers)
            taken.append((time.perf_counter() - began) * 1000)
            assert answer.status_code == 200, answer.text
        cpu_ms = (time.process_time() - used_s) * 1000 / len(taken)
        frame = time.perf_counter()
        client.get(path)
        frame_ms = (time.perf_counter() - frame) * 1000
        first, *others = taken
        median = sorted(others)[rounds // 2]
        print(
            f"{path:<28} frame {frame_ms:4.0f} ms; content first {first:5.0f} ms, then {median:5.0f} ms, "
            f"worst {max(others):5.0f} ms; CPU {cpu_ms:4.0f} ms"
        )
    dashboard = client.app.state.dashboard  # type: ignore[attr-defined]
    assert client.portal is not None
    desk = client.portal.call(dashboard.desks.desk_of, None)  # the one for all: nobody signs in
    walks, before, began = desk.walk.walk_count, _cpu_s(pids), time.perf_counter()
    while desk.walk.walk_count < walks + 3:
        time.sleep(0.1)
    count, span = desk.walk.walk_count - walks, time.perf_counter() - began
    spent = [(after - earlier) * 1000 / count for after, earlier in zip(_cpu_s(pids), before, strict=True)]
    seen = desk.walk.snapshot
    print(f"a walk: {seen.took_ms} ms, {seen.call_count} calls, {len(seen.configs)} topics, {len(seen.groups)} groups")
    print(f"broker CPU a walk: {', '.join(f'{each:.0f} ms' for each in spent)} ({count} walks in {span:.0f} s)")


def _cpu_s(pids: list[int]) -> list[float]:
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return [(int(each[11]) + int(each[12])) / _TICKS_A_SECOND for each in fields]


if __name__ == "__main__":
    main()
