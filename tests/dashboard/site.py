"""A dashboard before a real cluster, asked as a browser asks; for tests of pages."""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

from httpx2 import Response
from starlette.testclient import TestClient

from bolide.clock import Clock, SystemClock
from bolide.dashboard.app import build_app
from bolide.dashboard.config import DashboardConfig
from bolide.dashboard.pages import all_pages

ORIGIN = "http://127.0.0.1:8082"
LIMIT_S = 15.0
POLL_INTERVAL_S = 0.02


class Site:
    """One browser with one session."""

    def __init__(self, client: TestClient) -> None:
        self.client = client

    def frame(self, path: str) -> Response:
        return self.client.get(path)

    def content(self, path: str, **fields: str) -> Response:
        """What htmx asks for, and swaps in."""
        return self.client.get(path, params=fields or None, headers={"HX-Request": "true"})

    def text(self, path: str, **fields: str) -> str:
        answer = self.content(path, **fields)
        assert answer.status_code == 200, f"{answer.status_code}: {answer.text}"
        return answer.text

    def rows(self, path: str, **fields: str) -> Any:
        answer = self.client.get(path, params={**fields, "format": "json"})
        assert answer.status_code == 200, f"{answer.status_code}: {answer.text}"
        return answer.json()

    def token(self) -> str:
        """The token of this session, from a form of its own."""
        found = re.search(r'name="token" value="([^"]+)"', self.content("/topics/create").text)
        assert found is not None
        return found[1]

    def post(self, path: str, **fields: Any) -> Response:
        """Send a form as our own page does."""
        headers = {"Origin": ORIGIN, "Sec-Fetch-Site": "same-origin"}
        form = {"token": self.token(), **fields}
        return self.client.post(path, data=form, headers=headers, follow_redirects=False)

    def wait_for(self, path: str, is_there: Callable[[str], bool], **fields: str) -> str:
        """The content of a page as soon as something is on it."""
        deadline_s = time.monotonic() + LIMIT_S
        while True:
            text = self.content(path, **fields).text
            if is_there(text):
                return text
            assert time.monotonic() < deadline_s, f"never on {path}:\n{text[:4000]}"
            time.sleep(POLL_INTERVAL_S)


def every_path(**named: str) -> list[str]:
    """An address of each page, with a topic, group, id and job of these names."""
    parts = {f"{{{name}:path}}": quote(value, safe="") for name, value in named.items()} | {
        "{job}": "none",
        "{kind}": "cluster",
    }
    found = []
    for page in all_pages():
        path = page.path
        for part, value in parts.items():
            path = path.replace(part, value)
        assert "{" not in path, f"{path} has a part that is not named here"
        found.append(path)
    return found


@contextmanager
def site(namesrv: str, clock: Clock | None = None, **settings: Any) -> Iterator[Site]:
    """A dashboard of a cluster; settings are those of DashboardConfig."""
    config = DashboardConfig(**{"namesrv": namesrv, "walk_interval_s": 0.2, **settings})
    with TestClient(build_app(config, clock or SystemClock()), base_url=ORIGIN) as client:
        yield Site(client)


def sign_in(found: Site, user: str, password: str, **fields: str) -> Response:
    page = found.client.get("/login").text
    token = re.search(r'name="token" value="([^"]+)"', page)
    assert token is not None
    form = {"user": user, "password": password, "token": token[1], **fields}
    return found.client.post("/login", data=form, headers={"Origin": ORIGIN}, follow_redirects=False)
