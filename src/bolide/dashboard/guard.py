"""What every request must be, before anybody looks at it; and what every answer says to the browser.

The `Host` must be one we serve: a page of a stranger whose name suddenly means 127.0.0.1 (DNS rebinding) still sends
its own name. A number is no name and cannot be rebound. A request that changes something must come from a page of ours:
the browser says so in `Origin`, or in `Sec-Fetch-Site` where it leaves the first out. The token of a form is asked for
by the one who reads the form (`page.py`).
"""

from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bolide.dashboard.config import DashboardConfig

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
BODY_SIZE_MAX = 9 << 20  # the largest message with its form
_SAFE_METHODS = frozenset(("GET", "HEAD"))
Refused = tuple[int, str]  # the status, and why


class Guard:
    """Stands before all pages."""

    def __init__(self, app: ASGIApp, config: DashboardConfig) -> None:
        self._app = app
        self._config = config
        self._public_host = urlsplit(config.public_url).netloc.lower()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        problem = self.problem(scope["method"], headers)

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                told = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    told[name] = value
                told.setdefault("Cache-Control", "no-store")
            await send(message)

        if problem is not None:
            status, why = problem
            answer = PlainTextResponse(f"{why}\n", status_code=status)
            await answer(scope, receive, send_guarded)
            return
        await self._app(scope, receive, send_guarded)

    def problem(self, method: str, headers: Headers) -> Refused | None:
        """Why a request is refused; None if it is not."""
        host = headers.get("host", "").lower()
        if not self.serves(host):
            return 421, f"Host {host[:200]!r} is none of this dashboard's; --public-url names the one behind a proxy"
        if method in _SAFE_METHODS:
            return None
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if origin is None and site is None:
            return 403, "a change needs an Origin, which browsers send"
        if site is not None and site != "same-origin":
            return 403, f"a page of another site ({site[:40]}) may change nothing here"
        if origin is not None and origin not in self._origins(host):
            return (
                403,
                f"a page of {origin[:200]} may change nothing here; --public-url names the origin behind a proxy",
            )
        # Said before a byte of it is read: a file of a form is kept on disk while it comes.
        length = headers.get("content-length", "")
        if not (length.isascii() and length.isdigit()):
            return 411, "a form says how long it is"
        if len(length) > 12 or int(length) > BODY_SIZE_MAX:
            return 413, f"a form of {length[:40]} bytes is too large: {BODY_SIZE_MAX} at most"
        return None

    def serves(self, host: str) -> bool:
        """Whether we are meant by a `Host`."""
        if self._public_host and host == self._public_host:
            return True
        name = _name_of(host)
        if name in ("localhost", self._config.host):
            return bool(name)
        try:
            ip_address(name)
        except ValueError:
            return False
        return True

    def _origins(self, host: str) -> set[str]:
        own = {f"http://{host}"}
        return own | {self._config.public_url.rstrip("/")} if self._config.public_url else own


def _name_of(host: str) -> str:
    """`host:port` without its port; IPv6 stands in brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]
