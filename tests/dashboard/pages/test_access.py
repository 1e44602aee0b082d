"""Users and rights of a cluster that checks them: the rows of the commands, changed here, and never a secret."""

from collections.abc import Iterator

import pytest

from bolide import Admin, Credentials
from bolide.admin.rows import acl_rows, user_rows
from bolide.testing.blocking import Cluster
from tests.dashboard.site import Site, sign_in, site

ROOT = Credentials(access_key="root", secret_key="root-secret")
SECRET = "ada-secret-17"


@pytest.fixture(scope="module")
def root(guarded: Cluster) -> Iterator[Site]:
    with site(guarded.namesrv, allows_changes=True) as found:
        assert sign_in(found, "root", "root-secret").status_code == 303
        yield found


def test_a_user_is_made_gets_a_right_loses_it_and_is_deleted(guarded: Cluster, root: Site) -> None:
    assert root.post("/access/users", name="ada", secret=SECRET, type="Normal").status_code == 303
    grant = {"user": "ada", "actions": "Pub,Sub", "resource": "Topic:Orders", "decision": "Allow", "from": ""}
    assert root.post("/access/grants", **grant).status_code == 303
    rows = root.rows("/access")
    with Admin(guarded.namesrv, credentials=ROOT) as admin:
        assert rows["users"] == user_rows(admin.users())
        assert rows["policies"] == acl_rows(admin.acls())
    assert [(row["user"], row["actions"]) for row in rows["policies"]] == [("ada", "Pub,Sub")]
    asked = root.text("/access", user="ada", action="Pub", resource="Topic:Orders")
    assert ": yes." in asked
    assert root.post("/access/grants/revoke", user="ada", resource="Topic:Orders").status_code == 303
    assert root.rows("/access")["policies"] == []
    assert "nothing was deleted" in root.post("/access/users/delete", name="ada", typed="eve").text
    assert root.post("/access/users/delete", name="ada", typed="ada").status_code == 303
    assert "ada" not in [row["user"] for row in root.rows("/access")["users"]]
    seen = root.text("/access") + root.text("/settings")
    assert "create user" in seen
    assert SECRET not in seen + asked
    assert "root-secret" not in seen


@pytest.mark.parametrize(
    ("path", "form", "words"),
    [
        ("/access/users", {"name": "", "secret": SECRET}, "name the user"),
        ("/access/users", {"name": "bob", "secret": "short"}, "8 characters"),
        ("/access/grants", {"user": "root", "actions": "", "resource": "Topic:x"}, "name the user, the actions"),
        ("/access/grants/revoke", {"user": "root", "resource": ""}, "name the user and the resource"),
    ],
)
def test_what_is_missing_in_a_form_is_told(root: Site, path: str, form: dict[str, str], words: str) -> None:
    answer = root.post(path, **form)
    assert answer.status_code == 502
    assert words in answer.text


def test_read_only_there_is_no_form_that_changes_anything(guarded: Cluster) -> None:
    with site(guarded.namesrv) as found:
        sign_in(found, "root", "root-secret")
        assert 'method="post"' not in found.text("/access")
