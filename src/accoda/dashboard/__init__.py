"""The dashboard that `accoda serve` shows at `/`: pages rendered on the server, live by server-sent events.

`dashboard.py` is the ASGI application: from a path to a page, an action, a file or a stream. `routes.py` has the tables
of pages and actions; each module of `pages/` adds its own, and has a template of its name. It calls
`accoda.operations`, and never a storage.
"""
