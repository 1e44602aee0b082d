"""All pages, a module each; which there are is said here."""

from starlette.routing import Route

from bolide.dashboard.page import Action, Page
from bolide.dashboard.pages import (
    access,
    charts,
    clients,
    dead,
    delayed,
    groups,
    menu,
    message,
    messages,
    overview,
    reset,
    search,
    send,
    settings,
    state,
    tail,
    topic_changes,
    topics,
    transactions,
)

# Of two paths that fit, the first is taken: what stands under a name comes before the name.
_MODULES = (
    *(overview, charts, search, messages, message, tail, topic_changes, topics, reset, groups, dead),
    *(clients, send, delayed, transactions, access, settings, state, menu),
)


def all_pages() -> list[Page]:
    return [page for module in _MODULES for page in getattr(module, "PAGES", ())]


def all_actions() -> list[Action]:
    return [action for module in _MODULES for action in getattr(module, "ACTIONS", ())]


def other_routes() -> list[Route]:
    """What is neither a page nor a change: downloads, streams, and what scripts ask."""
    return [route for module in _MODULES for route in getattr(module, "ROUTES", ())]
