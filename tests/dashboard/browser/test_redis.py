"""The dashboard in a browser, over a store in Redis."""

from everything import Everything


class TestRedis(Everything):
    storage = "redis"
