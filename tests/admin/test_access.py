"""What an administrator asks about users, policies and accounts, as it goes over the wire."""

import msgspec

from bolide.admin.admin import Admin
from bolide.clock import SystemClock
from bolide.protocol.bodies import Account, Accounts, Acl, AclEntry, AclPolicy, User, encode_list
from bolide.protocol.codes import RequestCode
from bolide.protocol.command import Command
from bolide.protocol.headers.access import GetAclVersionAnswer, UpdateAclRequest
from bolide.remoting.listen_config import ListenConfig
from bolide.remoting.owner import Owner
from bolide.remoting.server import listen
from bolide.remoting.session import Reply, Request, Session
from tests.remoting.loops import both_loops

BOB = User(username="bob", user_type="Normal", user_status="enable")
ENTRY = AclEntry(actions=["Pub"], decision="Allow", resource="Topic:T")
BOBS = Acl(subject="User:bob", policies=[AclPolicy(entries=[ENTRY], policy_type="Custom")])
VERSION = GetAclVersionAnswer(version="{}", broker_name="b", broker_address="h:1", cluster_name="c")
ACCOUNTS = Accounts(plain_access_configs=[Account(access_key="account1", secret_key="******")])


class Peer(Owner):
    """A broker that remembers what it was asked, and answers with what it was given for a code."""

    def __init__(self) -> None:
        self.heard: list[Command] = []
        self.bodies = {
            RequestCode.AUTH_GET_USER: BOB.encode(),
            RequestCode.AUTH_LIST_USER: encode_list([BOB]),
            RequestCode.AUTH_GET_ACL: BOBS.encode(),
            RequestCode.AUTH_LIST_ACL: encode_list([BOBS]),
            RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG: ACCOUNTS.encode(),
        }

    def serve(self, request: Request) -> Reply:
        self.heard.append(request.command)
        answer = request.command.answer(0, body=self.bodies.get(RequestCode(request.command.code), b""))
        if request.command.code == RequestCode.GET_BROKER_CLUSTER_ACL_INFO:
            answer.fields = VERSION.encode()
        return answer

    def closed(self, session: Session, why: str) -> None:
        pass


@both_loops
async def test_users_and_policies_are_asked_for_and_changed_with_rocketmqs_requests() -> None:
    peer, config = Peer(), ListenConfig(host="127.0.0.1", port=0)
    async with listen(config, peer, SystemClock()) as server, Admin("h:1") as admin:
        at = f"127.0.0.1:{server.port}"
        assert await admin.users("bo", address=at) == {at: [BOB]}
        assert await admin.user("bob", address=at) == BOB
        assert await admin.create_user("bob", "hush", user_type="Super", address=at) == [at]
        await admin.update_user("bob", password="hush2", address=at)
        await admin.delete_user("bob", address=at)
        assert await admin.acls("bo", "T", address=at) == {at: [BOBS]}
        assert await admin.acl("User:bob", address=at) == BOBS
        await admin.grant("User:bob", ["Topic:T"], ["Pub"], address=at)
        await admin.revoke("User:bob", "Topic:T", policy_type="Custom", address=at)
    assert [command.code for command in peer.heard] == [3005, 3004, 3001, 3002, 3003, 3010, 3009, 3007, 3008]
    listed, _, made, changed, _, found, _, granted, revoked = peer.heard
    assert (listed.fields, made.fields) == ({"filter": "bo"}, {"username": "bob"})
    wanted = User(username="bob", password="hush", user_type="Super", user_status="enable")
    assert User.decode(made.body).encode() == wanted.encode()
    assert msgspec.json.decode(changed.body) == {"username": "bob", "password": "hush2"}
    assert found.fields == {"subjectFilter": "bo", "resourceFilter": "T"}
    assert Acl.decode(granted.body) == BOBS
    assert revoked.fields == {"subject": "User:bob", "policyType": "Custom", "resource": "Topic:T"}


@both_loops
async def test_accounts_of_4_are_asked_for_and_changed_with_rocketmqs_requests() -> None:
    peer, config = Peer(), ListenConfig(host="127.0.0.1", port=0)
    async with listen(config, peer, SystemClock()) as server, Admin("h:1") as admin:
        at = f"127.0.0.1:{server.port}"
        await admin.set_account(UpdateAclRequest(access_key="account1", secret_key="12345678"), address=at)
        await admin.delete_account("account1", address=at)
        assert await admin.account_versions(address=at) == {at: VERSION}
        assert await admin.accounts(address=at) == {at: ACCOUNTS}
        await admin.set_white_addresses(["10.0.0.1", "10.0.1.*"], address=at)
    assert [command.code for command in peer.heard] == [50, 51, 52, 54, 53]
    assert peer.heard[0].fields == {"accessKey": "account1", "secretKey": "12345678", "admin": "false"}
    assert peer.heard[-1].fields == {"globalWhiteAddrs": "10.0.0.1,10.0.1.*", "aclFileFullPath": ""}
