"""Accounts of ACL 1.0: what a file says, what is wrong with one, and how requests change it."""

import asyncio
import logging
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bolide.access.accounts import AccountTable, parse_file
from bolide.access.config import AccessConfig
from bolide.access.questions import of_group, of_topic
from bolide.access.resources import Action, Kind, Need
from bolide.access.sources import Accounts
from bolide.errors import ConfigError, Refusal
from bolide.model.topics import TRACE_TOPIC
from bolide.protocol.command import Command
from bolide.protocol.headers.access import UpdateAclRequest
from tests.access.walking import signed

PATH = Path("conf/plain_acl.yml")
FILE = """
globalWhiteRemoteAddresses:
- 10.10.15.*
accounts:
- accessKey: RocketMQ
  secretKey: 012345678
  whiteRemoteAddress:
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms:
  - topicA=DENY
  - topicB=PUB|SUB
  groupPerms:
  - groupA=DENY
- accessKey: rocketmq2
  secretKey: yes-yes-yes
  whiteRemoteAddress: 192.168.1.*
  admin: true
"""


def test_a_file_of_rocketmq_is_read_as_it_stands() -> None:
    file = parse_file(PATH, FILE)
    first, second = file.accounts.values()
    assert (first.access_key, first.secret_key, second.secret_key) == ("RocketMQ", "012345678", "yes-yes-yes")
    assert (first.of_topic("topicA"), first.of_topic("topicB"), first.of_topic("other")) == (1, 12, 1)
    assert (first.of_group("groupA"), first.of_group("other")) == (1, 8)
    assert second.is_admin
    assert second.white.has("192.168.1.7")
    assert file.white.has("10.10.15.1")
    assert "012345678" not in repr(file)
    assert parse_file(PATH, "") == parse_file(PATH, "# nothing\n")


@pytest.mark.parametrize(
    ("wrong", "right", "told"),
    [
        ("secretKey: 012345678", "secretKey: short", r"line 6: account RocketMQ: secretKey must have more than 6"),
        ("- topicB=PUB|SUB", "- topicB", r"line 13: account RocketMQ: 'topicB' is not of the form name=PUB"),
        ("admin: true", "admin: perhaps", r"line 19: account rocketmq2: admin must be true or false"),
        ("192.168.1.*", "192.*", r"line 18: account rocketmq2: '192.\*' has not 4 parts"),
        ("- 10.10.15.*", "- 10.10.15", r"line 3: '10.10.15' is no address"),
        ("accounts:", "acounts:", r"line 4: 'acounts' is no key here; known are .*accounts"),
        ("rocketmq2", "RocketMQ", r"line 16: account RocketMQ: is there twice"),
        ("admin: false", "admin: [", r"line \d+: "),
    ],
)
def test_a_mistake_is_named_by_file_line_and_account(wrong: str, right: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told) as problem:
        parse_file(PATH, FILE.replace(wrong, right, 1))
    assert str(PATH) in str(problem.value)
    assert "012345678" not in str(problem.value)


def refused(call: object) -> tuple[int, str]:
    with pytest.raises(Refusal) as refusal:
        call()  # type: ignore[operator]
    return refusal.value.code, refusal.value.remark


def test_requests_change_the_file_that_owns_the_account_and_raise_its_version() -> None:
    other = Path("conf/acl/more.yml")
    table = AccountTable.of(
        {PATH: parse_file(PATH, FILE), other: parse_file(other, FILE.replace("rocketmq2", "third33"))}
    )
    assert table.repeated() == ["RocketMQ"]
    twice = UpdateAclRequest(access_key="RocketMQ", secret_key="new-secret")
    changed, path = table.with_account(twice, 7)
    assert (path, changed.accounts["RocketMQ"].secret_key) == (PATH, "new-secret"), "the first file has it"
    given = UpdateAclRequest(access_key="third33", secret_key="new-secret", topic_permissions="A=PUB,B=SUB")
    table, path = table.with_account(given, 7)
    assert path == other
    assert table.accounts["third33"].topics == {"A": 4, "B": 8}
    assert (table.files[other].counter, table.files[other].changed_ms) == (1, 7)
    again = parse_file(other, table.files[other].text())
    assert again == table.files[other]
    table, path = table.without_account("rocketmq2", 8)
    assert (path, "rocketmq2" in table.accounts) == (PATH, False)
    table, path = table.with_white(["1.2.3.4"], "", 9)
    assert (path, table.is_white("1.2.3.4"), table.is_white("10.10.15.1")) == (PATH, True, True)


def test_refusals_of_changes_have_rocketmqs_codes() -> None:
    table = AccountTable.of({PATH: parse_file(PATH, FILE)})
    code, remark = refused(lambda: table.with_account(UpdateAclRequest(access_key="short", secret_key="1234567"), 0))
    wanted = "The accessKey=short and secretKey=****** cannot be null and length should longer than 6"
    assert (code, remark) == (209, wanted)
    own = UpdateAclRequest(access_key="longenough", secret_key="1234567", topic_permissions="Open")
    assert refused(lambda: table.with_account(own, 0))[1].startswith("Parse Resource format error for Open.\n")
    own = UpdateAclRequest(access_key="longenough", secret_key="1234567", white_remote_address="10.*")
    remark = refused(lambda: table.with_account(own, 0))[1]
    assert remark.startswith("Netaddress examine scope Exception netaddress is 10.*: ")
    code, remark = refused(lambda: table.without_account("nobody1", 0))
    assert (code, "The accesskey[nobody1] corresponding to accessConfig" in remark) == (210, True)
    assert refused(lambda: table.with_white(["1.2.3.4"], "/etc/passwd", 0))[0] == 211
    assert refused(lambda: table.with_white(["10.*"], "", 0))[0] == 211


def test_what_is_told_of_accounts_has_stars_for_secrets() -> None:
    told = AccountTable.of({PATH: parse_file(PATH, FILE)}).shown().encode()
    assert b"012345678" not in told
    assert told.count(b"******") == 2


def test_a_changed_file_is_followed_a_broken_one_is_not_and_the_log_says_where(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        path = tmp_path / "conf" / "plain_acl.yml"
        path.parent.mkdir()
        path.write_text(FILE)
        accounts = Accounts(AccessConfig(has_accounts=True), tmp_path)
        assert accounts.secret_of("RocketMQ") == "012345678"
        path.write_text(FILE.replace("012345678", "another-one"))
        os.utime(path, ns=(1, 1))
        accounts.refresh()
        assert accounts.secret_of("RocketMQ") == "another-one"
        path.write_text(FILE.replace("012345678", "short"))
        accounts.refresh()
        assert accounts.secret_of("RocketMQ") == "another-one"
        (tmp_path / "conf" / "acl").mkdir()
        (tmp_path / "conf" / "acl" / "more.yml").write_text(FILE.replace("rocketmq2", "third33"))
        path.write_text(FILE)
        accounts.refresh()
        assert set(accounts.table.accounts) == {"RocketMQ", "rocketmq2", "third33"}

    with caplog.at_level(logging.WARNING):
        asyncio.run(scenario())
    assert "line 6: account RocketMQ: secretKey must have more than 6 characters" in caplog.text
    assert "pass everything, without an account: 10.10.15.*" in caplog.text
    assert "another-one" not in caplog.text


LISTED = """
globalWhiteRemoteAddresses: [10.10.15.*]
accounts:
- {accessKey: listed11, secretKey: of-listed, whiteRemoteAddress: 192.168.1.*}
- {accessKey: trusting, secretKey: of-trusting, defaultTopicPerm: PUB|SUB, defaultGroupPerm: SUB}
- {accessKey: powerless, secretKey: of-powerless}
"""


@pytest.fixture
def listed(tmp_path: Path) -> Accounts:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "plain_acl.yml").write_text(LISTED)

    async def opened() -> Accounts:
        return Accounts(AccessConfig(has_accounts=True), tmp_path)

    return asyncio.run(opened())


def test_an_account_needs_no_signature_at_its_own_addresses_and_one_everywhere_else(listed: Accounts) -> None:
    unsigned = Command(26, fields={"AccessKey": "listed11"})
    assert listed.caller(unsigned, "192.168.1.7").is_super
    code, remark = refused(lambda: listed.caller(unsigned, "192.168.2.7"))
    assert (code, remark.endswith("Check signature failed for accessKey=listed11")) == (1, True)
    proven = signed(Command(26), "listed11", "of-listed")
    assert not listed.caller(proven, "192.168.2.7").is_super
    assert [getattr(listed.known("listed11", host), "is_super", None) for host in ("192.168.1.7", "192.168.2.7")] == [
        True,
        False,
    ]
    assert listed.known("nobody11", "192.168.1.7") is None


def test_rights_on_all_topics_and_groups_are_none_on_the_broker(listed: Accounts) -> None:
    caller = listed.caller(signed(Command(26), "trusting", "of-trusting"), "10.0.0.1")
    listed.judge(caller, 11, (of_topic("T", Action.SUB), of_group("g", Action.SUB)), "10.0.0.1")
    for needs in (None, (Need(Kind.CLUSTER, "C1", frozenset((Action.GET,))),)):
        code, remark = refused(lambda needs=needs: listed.judge(caller, 26, needs, "10.0.0.1"))  # type: ignore[misc]
        assert (code, remark.endswith("Need admin permission for request code=26, but accessKey=trusting is not")) == (
            1,
            True,
        )


def test_every_account_may_write_traces_and_only_one_with_the_right_reads_them(listed: Accounts) -> None:
    caller = listed.caller(signed(Command(310), "powerless", "of-powerless"), "10.0.0.1")
    listed.judge(caller, 310, (of_topic(TRACE_TOPIC, Action.PUB),), "10.0.0.1")
    for action in (Action.SUB, Action.GET):
        asked = (of_topic(TRACE_TOPIC, action),)
        assert refused(lambda asked=asked: listed.judge(caller, 11, asked, "10.0.0.1"))[0] == 1  # type: ignore[misc]


@pytest.mark.parametrize("is_seen", [False, True])
def test_a_change_by_request_writes_over_no_file_that_has_a_mistake_and_keeps_it_to_its_owner(
    tmp_path: Path, is_seen: bool
) -> None:
    path = tmp_path / "conf" / "plain_acl.yml"
    path.parent.mkdir()
    path.write_text(FILE)
    given = UpdateAclRequest(access_key="third33", secret_key="new-secret")

    async def scenario() -> None:
        accounts = Accounts(AccessConfig(has_accounts=True), tmp_path)
        with ThreadPoolExecutor(1) as thread:
            path.write_text(FILE.replace("012345678", "short"))
            if is_seen:
                accounts.refresh()
            with pytest.raises(Refusal, match=r"nothing is changed before the file is repaired.*account RocketMQ"):
                await accounts.change(lambda table: table.with_account(given, 0), thread)
            assert path.read_text() == FILE.replace("012345678", "short")
            path.write_text(FILE)
            await accounts.change(lambda table: table.with_account(given, 0), thread)
            assert accounts.secret_of("third33") == "new-secret"

    asyncio.run(scenario())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_white_list_for_everybody_is_warned_about(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "plain_acl.yml").write_text("globalWhiteRemoteAddresses: ['*']")
    with caplog.at_level(logging.WARNING):
        asyncio.run(_open(tmp_path))
    assert "everybody passes" in caplog.text


async def _open(home: Path) -> None:
    Accounts(AccessConfig(has_accounts=True), home)
