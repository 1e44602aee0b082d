"""Who may operate a server: everybody who reaches it, or this machine alone, until access control asks for names.

Locality is a matter of the connection (`Session.is_from_here`), not of what a PROXY header claims.
"""

from bolide.errors import Refusal
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.operations import Kind, kind_of
from bolide.remoting.owner import Request

ADMIN_FROM = "bolideAdminFrom"
LOCAL = "local"
ANYWHERE = "anywhere"
PLACES = (LOCAL, ANYWHERE)


def demand_local(request: Request) -> None:
    """Raises Refusal for a request that operates and comes from another machine."""
    code, session = request.command.code, request.session
    if kind_of(code) is not Kind.OPERATE or session.is_from_here:
        return
    name = RequestCode(code).name if code in set(RequestCode) else "unknown"
    raise Refusal(
        ResponseCode.NO_PERMISSION,
        f"request {code} ({name}) changes this server, which takes that from its own machine only and not from "
        f"{session.peer}; ask there, or start it with --admin-from {ANYWHERE} ({ADMIN_FROM}={ANYWHERE})",
    )
