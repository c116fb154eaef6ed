"""The dashboard in a browser, over a store in Redis."""

from everything import WhatIsStored


class TestRedis(WhatIsStored):
    storage = "redis"
