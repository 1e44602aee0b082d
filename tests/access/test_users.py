"""Users and policies of ACL 2.0 as values, and the files they lie in."""

import asyncio
import logging
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bolide.access.accounts import AccountTable, parse_file
from bolide.access.config import AccessConfig
from bolide.access.migration import migrated
from bolide.access.sources import Users
from bolide.access.users import UserTable, parse_policies, parse_users
from bolide.errors import Refusal, StoreError
from bolide.protocol.bodies.access import Acl, AclEntry, AclPolicy, User

PUB_T = Acl(
    policies=[
        AclPolicy(entries=[AclEntry(actions=["Pub"], decision="Allow", resource="Topic:T")], policy_type="Custom")
    ]
)
ON = AccessConfig(is_authenticating=True, first_user='{"username":"root","password":"first-secret"}')


def refused(call: object) -> tuple[int, str]:
    with pytest.raises(Refusal) as refusal:
        call()  # type: ignore[operator]
    return refusal.value.code, refusal.value.remark


def test_users_are_made_changed_and_deleted_with_their_policies() -> None:
    table = UserTable().with_user(User(username="bob", password="s"))
    assert (table.users["bob"].is_super, table.users["bob"].is_enabled) == (False, True)
    table = table.with_changed(User(username="bob", user_type="super", user_status="DISABLE"))
    assert (table.users["bob"].is_super, table.users["bob"].is_enabled) == (True, False)
    assert table.users["bob"].password == "s"
    table = table.with_policies("User:bob", PUB_T)
    told = table.acl("User:bob")
    assert told is not None
    assert told.policies == PUB_T.policies
    assert table.without_user("bob") == UserTable()


def test_refusals_are_rocketmqs() -> None:
    table = UserTable().with_user(User(username="bob", password="s"))
    assert refused(lambda: table.with_user(User(username="bob", password="t"))) == (16, "The user is existed")
    assert refused(lambda: table.with_user(User(username="al"))) == (16, "password can not be blank")
    assert refused(lambda: table.with_user(User(username=" ", password="x"))) == (29, "The username is blank")
    assert refused(lambda: table.with_changed(User(username="al"))) == (16, "The user is not exist")
    assert refused(lambda: table.with_policies("User:al", PUB_T)) == (16, "The subject of User:al is not exist.")
    assert refused(lambda: table.with_policies("", PUB_T)) == (29, "The subject is blank")
    assert refused(lambda: table.without_policies("User:bob", None, "Topic:T")) == (16, "The acl is not exist.")


def test_what_is_listed_has_no_password_and_what_is_written_has() -> None:
    table = UserTable().with_user(User(username="bob", password="planted")).with_policies("User:bob", PUB_T)
    assert b"planted" not in table.users["bob"].shown().encode()
    assert "planted" not in repr(table)
    assert UserTable(parse_users(table.users_text()), parse_policies(table.policies_text())) == table
    assert [acl.subject for acl in table.acls("bo", "T")] == ["User:bob"]
    assert table.acls("bo", "other") == []


def test_a_first_user_is_made_once_and_its_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    async def scenario() -> None:
        users = Users(ON, tmp_path)
        assert users.table.users["root"].is_super
        with ThreadPoolExecutor(1) as thread:
            change = User(username="root", password="second-secret")
            await users.change(lambda table: table.with_changed(change), thread)
        assert Users(ON, tmp_path).table.users["root"].password == "second-secret"

    asyncio.run(scenario())
    for path in tmp_path.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def test_a_file_that_somebody_edits_is_followed_and_a_broken_one_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        users = Users(ON, tmp_path)
        version, path = users.version, tmp_path / "users.json"
        users.refresh()
        assert users.version == version
        path.write_text(path.read_text().replace("first-secret", "other-secret"))
        os.utime(path, ns=(1, 1))
        users.refresh()
        assert users.table.users["root"].password == "other-secret"
        path.write_text('{"users":[{"username":"root"}]}')
        users.refresh()
        assert users.table.users["root"].password == "other-secret"
        assert users.version == version + 1

    with caplog.at_level(logging.ERROR):
        asyncio.run(scenario())
    assert "line 1: user 'root': password can not be blank" in caplog.text
    assert "other-secret" not in caplog.text


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        (
            "users.json",
            '{"users":[\n{"username":"bob","password":"x","userType":"King"}]}',
            r"line 2: user 'bob'.*King",
        ),
        ("users.json", '{"users":\n[\n{"username" "bob"}]}', r"line 3: .*malformed"),
        ("acls.json", '{"acls":[\n\n{"subject":"User:bob","policies":[{}]}]}', r"line 3: subject 'User:bob': "),
    ],
)
def test_a_start_with_a_broken_file_names_it_and_takes_no_older_one(
    tmp_path: Path, file: str, text: str, words: str
) -> None:
    Users(ON, tmp_path)
    (tmp_path / f"{file}.bak").write_text((tmp_path / file).read_text())  # somebody may be in it who was deleted
    (tmp_path / file).write_text(text)
    with pytest.raises(StoreError, match=rf"{file}: {words}.*repair"):
        Users(ON, tmp_path)
    assert (tmp_path / file).read_text() == text


def test_a_crash_between_two_files_leaves_no_rights_to_the_next_user_of_that_name() -> None:
    whole = UserTable().with_user(User(username="bob", password="s")).with_policies("User:bob", PUB_T)
    cut = UserTable(whole.without_user("bob").users, whole.policies)
    assert cut.with_user(User(username="bob", password="t")).acl("User:bob") is None


def test_a_file_that_is_gone_for_a_moment_locks_nobody_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        users, path = Users(ON, tmp_path), tmp_path / "users.json"
        path.rename(tmp_path / "elsewhere")
        users.refresh()
        users.refresh()
        assert users.table.users["root"].password == "first-secret"
        (tmp_path / "elsewhere").rename(path)
        users.refresh()
        with ThreadPoolExecutor(1) as thread:
            await users.change(lambda table: table.with_user(User(username="bob", password="s")), thread)
        assert set(users.table.users) == {"root", "bob"}

    with caplog.at_level(logging.ERROR):
        asyncio.run(scenario())
    assert caplog.text.count("users.json is not there any more") == 1


def test_a_change_by_request_loses_no_edit_and_writes_over_none_that_has_a_mistake(tmp_path: Path) -> None:
    """Several servers may share the files, and somebody may edit them: what is on disk counts."""

    async def scenario() -> None:
        one, other = Users(ON, tmp_path), Users(ON, tmp_path)
        with ThreadPoolExecutor(1) as thread:
            await one.change(lambda table: table.with_user(User(username="ann", password="s")), thread)
            await other.change(lambda table: table.with_user(User(username="bob", password="s")), thread)
            assert set(Users(ON, tmp_path).table.users) == {"root", "ann", "bob"}
            path = tmp_path / "users.json"
            path.write_text('{"users":[{"username":"root"}]}')
            with pytest.raises(Refusal, match=r"nothing is changed before the file is repaired.*user 'root'"):
                await one.change(lambda table: table.without_user("ann"), thread)
            assert path.read_text() == '{"users":[{"username":"root"}]}'

    asyncio.run(scenario())


def test_files_that_others_can_read_are_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        Users(ON, tmp_path)
        (tmp_path / "users.json").chmod(0o644)
        (tmp_path / "acls.json").chmod(0o602)
        Users(ON, tmp_path)

    with caplog.at_level(logging.WARNING):
        asyncio.run(scenario())
    assert "users.json is ours alone and can be read by others (mode 0644)" in caplog.text
    assert "acls.json is ours alone and can be written by others (mode 0602)" in caplog.text


def test_thousands_of_entries_or_addresses_are_refused_before_they_are_looked_at() -> None:
    table = UserTable().with_user(User(username="bob", password="s"))
    entries = [AclEntry(actions=["Nonsense"], decision="Allow", resource="x")] * 10_001
    assert (
        "at most 10000 entries"
        in refused(lambda: table.with_policies("User:bob", Acl(policies=[AclPolicy(entries=entries)])))[1]
    )
    far = AclEntry(actions=["Pub"], decision="Allow", resource="Topic:T", source_ips=["nowhere"] * 257)
    assert (
        "at most 256 addresses"
        in refused(lambda: table.with_policies("User:bob", Acl(policies=[AclPolicy(entries=[far])])))[1]
    )


def test_accounts_become_users_with_the_same_rights_once() -> None:
    text = """
accounts:
  - {accessKey: account1, secretKey: 12345678, admin: true}
  - accessKey: account2
    secretKey: '87654321'
    defaultTopicPerm: PUB
    topicPerms: ["A=DENY", "B=PUB|SUB"]
"""
    path = Path("plain_acl.yml")
    old = AccountTable.of({path: parse_file(path, text)})
    table = migrated(UserTable().with_user(User(username="account1", password="kept")), old)
    assert table.users["account1"].password == "kept"
    assert table.users["account2"].password == "87654321"
    acl = table.acl("User:account2")
    assert acl is not None
    entries = {(p.policy_type, e.resource): (e.decision, e.actions) for p in acl.policies for e in p.entries}
    assert entries == {
        ("Custom", "Topic:A"): ("Deny", ["All"]),
        ("Custom", "Topic:B"): ("Allow", ["Pub", "Sub"]),
        ("Default", "Topic:*"): ("Allow", ["Pub"]),
        ("Default", "Group:*"): ("Deny", ["All"]),
    }
