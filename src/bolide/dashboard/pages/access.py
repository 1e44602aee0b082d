"""`/access`: users and policies of each broker, changing them, whether somebody may do something; never a secret."""

from dataclasses import dataclass

from bolide.admin.access import ALLOW, DENY, NORMAL, SUPER
from bolide.admin.rights import Verdict
from bolide.admin.rows import acl_rows, user_rows
from bolide.dashboard.page import Action, Answer, Form, Page, Problem, Visit, problem_of
from bolide.errors import BolideError, ClientError

_SECRET_LENGTH_MIN = 8


@dataclass(frozen=True, slots=True)
class AccessView:
    """The page."""

    is_checked: bool
    users: list[dict[str, str]]
    policies: list[dict[str, str]]
    problem: Problem | None
    asked: dict[str, str]
    verdicts: list[Verdict]


async def load(visit: Visit) -> Answer:
    admin = visit.admin
    is_checked = await admin.is_access_checked()
    users: list[dict[str, str]] = []
    policies: list[dict[str, str]] = []
    problem = None
    asked = {name: visit.asked(name) for name in ("user", "action", "resource")}
    verdicts: list[Verdict] = []
    try:
        if is_checked:  # a broker that checks nobody keeps no users, and Apache's refuses to say so
            users, policies = user_rows(await admin.users()), acl_rows(await admin.acls())
            if all(asked.values()):
                verdicts = await admin.check_right(asked["user"], asked["action"], asked["resource"])
    except BolideError as failure:
        problem = problem_of(failure)
    view = AccessView(is_checked, users, policies, problem, asked, verdicts)
    return Answer("access.html", view, {"access_control": is_checked, "users": users, "policies": policies})


async def create_user(visit: Visit, form: Form) -> str:
    """Make a user. Its secret comes in the body of the form, and goes nowhere but to the brokers."""
    name, secret = form.text("name").strip(), form.text("secret")
    kind = SUPER if form.text("type") == SUPER else NORMAL
    if not name:
        raise ClientError("name the user")
    if len(secret) < _SECRET_LENGTH_MIN:
        raise ClientError(f"a secret has {_SECRET_LENGTH_MIN} characters at least")
    brokers = await visit.admin.create_user(name, secret, user_type=kind)
    visit.note("create user", name, after=f"{kind} on {', '.join(brokers)}")
    return "/access"


async def delete_user(visit: Visit, form: Form) -> str:
    """Delete a user with all it may do, its name typed."""
    name = form.text("name")
    if form.text("typed") != name or not name:
        raise ClientError(f"nothing was deleted: the name that was typed is not {name}")
    brokers = await visit.admin.delete_user(name)
    visit.note("delete user", name, after=f"gone from {', '.join(brokers)}")
    return "/access"


async def grant(visit: Visit, form: Form) -> str:
    """Allow or deny something; what the user had for the same resource is replaced."""
    user, resource = form.text("user").strip(), form.text("resource").strip()
    actions = [word.strip() for word in form.text("actions").split(",") if word.strip()]
    sources = [word.strip() for word in form.text("from").split(",") if word.strip()]
    if not (user and resource and actions):
        raise ClientError("name the user, the actions (Pub,Sub) and the resource (Topic:Orders)")
    decision = DENY if form.text("decision") == DENY else ALLOW
    await visit.admin.grant(f"User:{user}", [resource], actions, decision=decision, source_ips=sources)
    visit.note("grant", user, after=f"{decision} {','.join(actions)} {resource}")
    return "/access"


async def revoke(visit: Visit, form: Form) -> str:
    """Take back what a user has for a resource."""
    user, resource = form.text("user"), form.text("resource")
    if not (user and resource):
        raise ClientError("name the user and the resource")
    await visit.admin.revoke(f"User:{user}", resource)
    visit.note("revoke", user, before=resource)
    return "/access"


PAGES = [Page("/access", "Access", load)]
ACTIONS = [
    Action("/access/users", create_user),
    Action("/access/users/delete", delete_user),
    Action("/access/grants", grant),
    Action("/access/grants/revoke", revoke),
]
