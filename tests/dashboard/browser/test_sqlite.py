"""The dashboard in a browser, over a store in SQLite."""

from everything import Everything


class TestSqlite(Everything):
    storage = "sqlite"
