"""The dashboard: pages for people over `bolide.admin`, for Bolide's and Apache's clusters. Needs `bolide[dashboard]`.

It runs as a process of its own and keeps nothing but sessions, a bounded history (`history.py`) and a file of changes
(`audit.py`). Everything else is asked of the cluster. What comes from a cluster is hostile text, and stays text.

How a page is added:

1. A module in `pages/`, named after what it shows. It has a *typed view* (frozen dataclasses with what the template
   needs, nothing more) and a *load* function, `async def load(visit: Visit) -> Answer`, that asks `visit.admin`, turns
   what it was told into the view and returns `Answer("orders.html", view, rows)`. `rows` is what `?format=json`
   answers: the functions of `bolide.admin.rows`, which the command line uses too. A refusal or a silent cluster needs
   no care: `page.py` shows which call failed and the broker's words. Use `gathered` for many calls, so that rows that
   fail say so.
2. A template in `templates/`, of the content only; macros for times, numbers, copy buttons and states are in
   `parts.html`.
3. `PAGES = [Page("/orders", "Orders", load, refresh_s=15)]` in the module, and the module in `pages/__init__.py`. For
   the navigation one line in `app.py`.
4. Changes are `ACTIONS = [Action("/orders/{name:path}/close", close)]`: `async def close(visit: Visit, form: Form) ->
   str` does it, notes it with `visit.note(...)` and returns where to go then. They are there with `--allow-changes`
   only, and nobody of another origin reaches them (`guard.py`). In a template `{% if changes %}` surrounds their forms,
   and `{{ token() }}` stands in each.

The page comes in two requests: the frame at once, then the content (`HX-Request`), which is asked for again every
`refresh_s` seconds and laid over the old one, so that nothing jumps. A test of a page asks for the content with
`tests/dashboard/site.py`.
"""
