"""What does access control cost a send, and how does that compare with Apache's broker?

Two brokers of ours, one without access control and one with users and policies (ACL 2.0), take turns with the same
load, and so do two of Apache's: sends of code 310 over 8 connections with 16 in flight each (`broker_load.c`, which
signs each send itself). The user is no administrator: a policy gives it Pub on the topic.

What it does not show: TLS, a network, and users in large numbers.

    python -m benchmarks.signed
    python -m benchmarks.signed --without-java --seconds 2
"""

import json
import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.measure import machine
from benchmarks.measured_brokers import LOAD_SOURCE, Measured, bolide_up, java_up, read_load_options
from benchmarks.programs import built
from bolide.protocol.bodies.access import Acl, AclEntry, AclPolicy, User
from bolide.protocol.signature import ACCESS_KEY, SIGNATURE, sign
from interop.wire import call

QUESTION = "What does access control cost a send?"
TOPIC, ROOT, USER, SECRET = "Signed", "root", "bob", "a secret of some length"
_AUTH = "org.apache.rocketmq.auth"
ON = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "authenticationMetadataProvider": f"{_AUTH}.authentication.provider.LocalAuthenticationMetadataProvider",
    "authorizationMetadataProvider": f"{_AUTH}.authorization.provider.LocalAuthorizationMetadataProvider",
    "initAuthenticationUser": json.dumps({"username": ROOT, "password": SECRET}),
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": "inner", "secretKey": SECRET}),
}
LOAD_LIMIT_S = 120


def ask(broker: Measured, code: int, fields: dict[str, str], body: bytes = b"", *, is_signed: bool) -> None:
    """As the administrator; raises AssertionError for a refusal."""
    if is_signed:
        fields = fields | {ACCESS_KEY: ROOT}
        fields[SIGNATURE] = sign(fields, body, SECRET)
    answer = call(broker.broker, code, fields, body)
    assert answer.code == 0, answer


def prepare(broker: Measured, *, is_signed: bool) -> None:
    """The topic, and the user that may send to it."""
    fields = {"topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6"}
    fields |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
    ask(broker, 17, fields, is_signed=is_signed)
    if is_signed:
        ask(broker, 3001, {"username": USER}, User(username=USER, password=SECRET).encode(), is_signed=True)
        entry = AclEntry(actions=["Pub"], decision="Allow", resource=f"Topic:{TOPIC}")
        acl = Acl(subject=f"User:{USER}", policies=[AclPolicy(entries=[entry], policy_type="Custom")])
        ask(broker, 3006, {"subject": f"User:{USER}"}, acl.encode(), is_signed=True)


def load(broker: Measured, seconds: float, *, is_signed: bool) -> dict[str, float]:
    """One run: sends a second, and the broker's CPU for each."""
    options: dict[str, object] = {"port": broker.broker[1], "pid": broker.program.pid, "mode": "send", "topic": TOPIC}
    options |= {"connections": 8, "in_flight": 16, "body": 128, "queues": 4, "seconds": seconds, "warmup": 1}
    if is_signed:
        options |= {"user": USER, "secret": SECRET}
    command = [str(built(LOAD_SOURCE)), *(f"{key}={value}" for key, value in options.items())]
    told = subprocess.run(command, check=True, capture_output=True, text=True, timeout=LOAD_LIMIT_S).stdout
    found: dict[str, float] = json.loads(told)
    return found


def main(argv: Sequence[str] | None = None) -> None:
    options = read_load_options(QUESTION, argv)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        brokers: dict[str, tuple[Measured, bool]] = {}
        for name, up in (("bolide", bolide_up), ("java", java_up))[: 1 if options.without_java else 2]:
            for is_signed in (False, True):
                place = directory / f"{name}-{is_signed}"
                place.mkdir()
                broker = stack.enter_context(up(place, ON if is_signed else None))
                prepare(broker, is_signed=is_signed)
                brokers[f"{name} {'signed' if is_signed else 'unsigned'}"] = broker, is_signed
        figures: dict[str, list[dict[str, float]]] = {name: [] for name in brokers}
        for _ in range(options.rounds):
            for name, (broker, is_signed) in brokers.items():
                figures[name].append(load(broker, options.seconds, is_signed=is_signed))
    rates = {
        name: round(statistics.median(each["sends"] / each["seconds"] for each in found))
        for name, found in figures.items()
    }
    cpu_us = {
        name: round(1e6 * statistics.median(each["cpu_s"] / each["sends"] for each in found), 2)
        for name, found in figures.items()
    }
    for name, rate in rates.items():
        print(f"{name:16} {rate:>9} sends/s {cpu_us[name]:>7} us of broker CPU each")
    print(json.dumps({"question": QUESTION, "sends_s": rates, "cpu_us": cpu_us, **machine()}))


if __name__ == "__main__":
    main()
