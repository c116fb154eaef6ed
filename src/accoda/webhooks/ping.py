"""A message to try a receiver with: signed and sent as any other, through the same guard, but stored nowhere."""

from __future__ import annotations

import msgspec

from accoda.clock import Clock, SystemClock
from accoda.storage.protocol import Storage
from accoda.webhooks.body import moment
from accoda.webhooks.caller import CallerOptions
from accoda.webhooks.decide import Attempt
from accoda.webhooks.extra import need_extra
from accoda.webhooks.guard import Policy
from accoda.webhooks.keys import headers, show
from accoda.webhooks.urls import check_url

EVENT = "webhook.test"


async def ping(store: Storage, url: str, options: CallerOptions | None = None, clock: Clock | None = None) -> Attempt:
    """Send one test message and give what came of it. Nothing is tried again."""
    need_extra()
    from accoda.webhooks.sender import Limits, Sender

    check_url(url)
    chosen = options or CallerOptions()
    now = (clock or SystemClock()).now()
    body = msgspec.json.encode({"type": EVENT, "timestamp": moment(now), "data": {}})
    signed = headers(await show(store, now), f"msg_test_{now}", body, now)
    limits = Limits(connect=chosen.connect, total=chosen.total)
    policy = chosen.policy or Policy.of_environment()
    sender = Sender(policy, limits, resolve=chosen.resolve, tls=chosen.tls, threads=1)
    try:
        return await sender.send(url, body, signed)
    finally:
        await sender.close()
