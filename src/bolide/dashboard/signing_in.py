"""Signing in and out."""

from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from bolide.client.config import Credentials
from bolide.dashboard.login import Door, is_right, is_user
from bolide.dashboard.page import TOKEN_FIELD, dashboard_of, set_cookie
from bolide.dashboard.sessions import COOKIE, Session
from bolide.errors import BolideError

_TEXT_LENGTH_MAX = 1024


async def show_login(request: Request) -> Response:
    """The form; its session is begun here, for its token."""
    dashboard = dashboard_of(request)
    door = await dashboard.desks.door()
    if door is Door.OPEN:
        return RedirectResponse("/", status_code=303)
    session = dashboard.sessions.find(request.cookies.get(COOKIE)) or dashboard.sessions.begin()
    return await _form(request, session)


async def _form(request: Request, session: Session, problem: str = "", status: int = 200) -> Response:
    dashboard = dashboard_of(request)
    is_cluster = await dashboard.desks.door() is Door.CLUSTER
    text = dashboard.templates.get_template("login.html").render(
        token=session.token,
        problem=problem,
        next=_inside(request.query_params.get("next", "/")),
        is_cluster=is_cluster,
        namesrv=dashboard.config.namesrv,
    )
    response = HTMLResponse(text, status_code=status)
    set_cookie(response, session, dashboard.config)
    return response


async def sign_in(request: Request) -> Response:
    """Let somebody in whose password is right; the session is a new one."""
    dashboard = dashboard_of(request)
    session = dashboard.sessions.find(request.cookies.get(COOKIE))
    async with request.form(max_files=0, max_part_size=_TEXT_LENGTH_MAX * 4) as fields:
        name, password, token, back = (str(fields.get(key, "")) for key in ("user", "password", TOKEN_FIELD, "next"))
    if session is None or not session.owns(token):
        return await _form(request, dashboard.sessions.begin(), "this form was too old; try again", 403)
    address = request.client.host if request.client is not None else ""
    if not dashboard.tries.take(address):
        return await _form(request, session, "too many tries; wait a minute", 429)
    credentials = None
    try:
        if await dashboard.desks.door() is Door.CLUSTER:
            credentials = Credentials(access_key=name, secret_key=password)
            is_known = bool(name and password) and await is_user(dashboard.config.namesrv, credentials, dashboard.clock)
        else:
            is_known = is_right(dashboard.passwords, name, password)
    except BolideError as problem:
        return await _form(request, session, f"the cluster could not be asked: {problem}", 502)
    if not is_known:
        return await _form(request, session, "no such user, or another password", 401)
    dashboard.tries.give_back(address)
    dashboard.sessions.end(session)
    fresh = dashboard.sessions.begin(name, credentials)
    response = RedirectResponse(_inside(back), status_code=303)
    set_cookie(response, fresh, dashboard.config)
    return response


async def sign_out(request: Request) -> Response:
    """End the session."""
    dashboard = dashboard_of(request)
    session = dashboard.sessions.find(request.cookies.get(COOKIE))
    async with request.form(max_files=0) as fields:
        token = str(fields.get(TOKEN_FIELD, ""))
    if session is not None and session.owns(token):
        dashboard.sessions.end(session)
    return RedirectResponse("/login", status_code=303)


def _inside(path: str) -> str:
    """A path of our own: no link leads through our login to another site."""
    parts = urlsplit(path)
    is_own = path.startswith("/") and not path.startswith(("//", "/\\")) and not parts.scheme and not parts.netloc
    return path if is_own else "/"
