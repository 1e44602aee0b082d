"""`/settings`: what servers run with, changed ones first; changing what may change; and every change that was made
here."""

import re
from dataclasses import dataclass
from urllib.parse import urlencode

from bolide.broker import config as broker
from bolide.dashboard.audit import Change
from bolide.dashboard.page import Action, Answer, Form, Page, Visit
from bolide.errors import ClientError
from bolide.namesrv import config as namesrv

_SECRET = re.compile(r"secret|password|credential|token|accesskey|authenticationuser", re.IGNORECASE)
HIDDEN = "******"


@dataclass(frozen=True, slots=True)
class SettingLine:
    """One setting; `usual` is what it is where nobody sets it, None where that is not known."""

    key: str
    value: str
    usual: str | None
    is_secret: bool

    @property
    def is_changed(self) -> bool:
        return self.usual is not None and self.usual != self.value and not self.is_secret


@dataclass(frozen=True, slots=True)
class SettingsView:
    """The settings of one server, and what was changed by the dashboard."""

    servers: dict[str, str]
    server: str
    address: str
    wanted: str
    lines: list[SettingLine]
    changes: list[Change]
    audit_file: str


def is_secret(key: str) -> bool:
    """Whether a setting may hold a secret, by its name."""
    return _SECRET.search(key) is not None


async def load(visit: Visit) -> Answer:
    servers = await _servers(visit)
    server = visit.asked("server") or next(iter(servers))
    if server not in servers:
        raise ClientError(f"there is no server {server}; there are {', '.join(servers)}", 22)
    told = await _told(visit, server, servers[server])
    wanted = visit.asked("q").lower()
    lines = [line for line in told if wanted in line.key.lower()]
    audit = visit.dashboard.audit
    recent, path = audit.recent(), str(audit.path or "")
    view = SettingsView(servers, server, servers[server], visit.asked("q"), lines, recent, path)
    rows = [{"key": line.key, "value": line.value} for line in sorted(told, key=lambda line: line.key)]
    return Answer("settings.html", view, rows)


async def _servers(visit: Visit) -> dict[str, str]:
    brokers = {f"broker {name}": address for name, address in (await visit.admin.broker_addresses()).items()}
    return brokers | {f"name server {address}": address for address in visit.admin.namesrv_addresses()}


async def _told(visit: Visit, server: str, address: str) -> list[SettingLine]:
    is_broker = server.startswith("broker ")
    told = await (visit.admin.broker_settings(address) if is_broker else visit.admin.namesrv_settings(address))
    usual = broker.shown(broker.BrokerConfig()) if is_broker else namesrv.shown(namesrv.NamesrvConfig())
    lines = []
    for key, value in told.items():
        hidden = is_secret(key) and bool(value)
        lines.append(SettingLine(key, HIDDEN if hidden else value, usual.get(key), hidden))
    return sorted(lines, key=lambda line: (not line.is_changed, line.key))


async def change(visit: Visit, form: Form) -> str:
    servers = await _servers(visit)
    server, key, value = form.text("server"), form.text("key").strip(), form.text("value")
    if server not in servers or not key:
        raise ClientError("name the server and the setting")
    before = next((line.value for line in await _told(visit, server, servers[server]) if line.key == key), "")
    if server.startswith("broker "):
        await visit.admin.set_broker(servers[server], {key: value})
    else:
        await visit.admin.set_namesrv({key: value})
    shown = HIDDEN if is_secret(key) else value
    visit.note("change setting", f"{key} of {server}", before=before, after=shown)
    return f"/settings?{urlencode({'server': server, 'q': key})}"


PAGES = [Page("/settings", "Settings", load)]
ACTIONS = [Action("/settings", change)]
