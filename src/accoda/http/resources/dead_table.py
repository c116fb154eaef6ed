"""The operations of `/api/v1/dead`, in words. What they do is in `dead.py`."""

from __future__ import annotations

from accoda.admin.dead import DeadGroup, Groups, ReplayReport, ReplayView
from accoda.admin.views import JobView, Page
from accoda.http.operation import Header, Link, Operation, Reply
from accoda.http.resources import dead
from accoda.http.resources.common import GONE, NAME_PATTERN, Count, Items, JobPath
from accoda.http.resources.jobs_table import ONE, RETRIED

GROUP = "Dead letters"
LETTER = JobView(
    id=41,
    queue="emails",
    state="dead",
    priority="NORMAL",
    rank=2.0,
    payload={"to": "anna@example.com"},
    attempts=5,
    created_at="2030-01-01T09:00:00.000Z",
    scheduled_at="2030-01-01T09:20:00.000Z",
    ended_at="2030-01-01T09:20:01.000Z",
    worker="mailer",
    reason="TimeoutError: no answer after 30 s",
    fingerprint="5d2f8e0b1c9a",
)
REPLAY = ReplayView(
    id="9f86d081884c7d65",
    status="running",
    queue="emails",
    rate=50.0,
    started_at="2030-01-01T10:00:00.000Z",
    matched=100,
    revived=100,
)
FILTER = {"queue": "emails", "fingerprint": "5d2f8e0b1c9a"}

OPERATIONS = (
    Operation(
        method="GET",
        path="/api/v1/dead",
        handler=dead.list_dead,
        group=GROUP,
        summary="List dead letters",
        description="Jobs that were given up, by queue and id, each with its reason.",
        query=dead.DeadQuery,
        query_example={"queue": "emails", "limit": 50},
        replies={
            200: Reply(
                description="A page.",
                type=Page[JobView],
                example=Page([LETTER]),
                links=(Link("listDead", {"cursor": "$response.body#/next"}),),
            )
        },
    ),
    Operation(
        method="DELETE",
        path="/api/v1/dead",
        handler=dead.delete_dead_filtered,
        group=GROUP,
        scope="admin",
        summary="Delete the dead letters of a queue",
        description="All of them, or those that fit. `after` and `before` are moments of their death.",
        query=dead.DeleteQuery,
        query_example={"queue": "emails", "dryRun": True},
        replies={200: Reply(description="How many were, or would be, deleted.", type=Count, example=Count(17))},
    ),
    Operation(
        method="GET",
        path="/api/v1/dead/groups",
        handler=dead.list_dead_groups,
        group=GROUP,
        summary="What dead letters have in common",
        description="Those whose reasons differ only in numbers, ids, quoted texts and addresses share a fingerprint. "
        "At most 20,000 are looked at; `partial` says that there are more.",
        query=dead.GroupsQuery,
        query_example={"queue": "emails"},
        replies={
            200: Reply(
                description="The groups, the largest first.",
                type=Groups,
                example=Groups(
                    groups=[
                        DeadGroup(
                            fingerprint="5d2f8e0b1c9a",
                            count=12,
                            reason="TimeoutError: no answer after 30 s",
                            queues=["emails"],
                            first_at="2030-01-01T08:00:00.000Z",
                            last_at="2030-01-01T09:20:01.000Z",
                            last_id=41,
                        )
                    ],
                    looked_at=12,
                    partial=False,
                ),
            )
        },
    ),
    Operation(
        method="POST",
        path="/api/v1/dead/replay",
        handler=dead.start_replay,
        group=GROUP,
        scope="admin",
        summary="Bring dead letters back",
        description="With a `filter` a replay begins, which goes on by itself at no more than `rate` jobs a second, "
        "through restarts: 202, and its state is at `Location`. With `dryRun` nothing is changed: 200, with their "
        "number and a few of them. With `ids` those come back at once: 200.",
        request=dead.ReplayRequest,
        rules={
            "allOf": [{"properties": {"filter": {"properties": {"queue": {"pattern": NAME_PATTERN}}}}}],
            "oneOf": [
                {"title": "filter", "required": ["filter"], "properties": {"ids": False}},
                {
                    "title": "ids",
                    "required": ["ids"],
                    "properties": {"filter": False, "rate": False, "dryRun": {"const": False}},
                },
            ],
        },
        example={"filter": FILTER, "rate": 50, "dryRun": True},
        replies={
            200: Reply(
                description="What was brought back, or would be.",
                type=ReplayReport,
                example=ReplayReport(matched=12, dry_run=True, samples=[LETTER]),
            ),
            202: Reply(
                description="The replay has begun.",
                type=ReplayView,
                example=REPLAY,
                headers=(Header(name="Location", description="The path of the replay."),),
                links=tuple(Link(name, {"id": "$response.body#/id"}) for name in ("getReplay", "stopReplay")),
            ),
        },
    ),
    Operation(
        method="GET",
        path="/api/v1/dead/replays",
        handler=dead.list_replays,
        group=GROUP,
        summary="Replays, the latest first",
        description="Those that go on, and those that have ended in the last week.",
        replies={200: Reply(description="The replays.", type=Items[ReplayView], example=Items([REPLAY]))},
    ),
    Operation(
        method="GET",
        path="/api/v1/dead/replays/{id}",
        handler=dead.get_replay,
        group=GROUP,
        summary="How far a replay is",
        path_type=dead.ReplayPath,
        path_example={"id": "9f86d081884c7d65"},
        replies={200: Reply(description="The replay.", type=ReplayView, example=REPLAY)},
        errors=("not-found",),
    ),
    Operation(
        method="POST",
        path="/api/v1/dead/replays/{id}/stop",
        handler=dead.stop_replay,
        group=GROUP,
        scope="admin",
        summary="Stop a replay",
        description="What it has brought back stays so; the step that runs now may still bring back its share.",
        path_type=dead.ReplayPath,
        path_example={"id": "9f86d081884c7d65"},
        replies={
            200: Reply(
                description="The replay as it ended.",
                type=ReplayView,
                example=ReplayView(id="9f86d081884c7d65", status="stopped", started_at="2030-01-01T10:00:00.000Z"),
            )
        },
        errors=("not-found", "conflict"),
    ),
    Operation(
        method="GET",
        path="/api/v1/dead/{id}",
        handler=dead.get_dead,
        group=GROUP,
        summary="Everything about a dead letter",
        path_type=JobPath,
        path_example=ONE,
        replies={200: Reply(description="The dead letter.", type=JobView, example=LETTER)},
        errors=("not-found",),
    ),
    Operation(
        method="DELETE",
        path="/api/v1/dead/{id}",
        handler=dead.delete_dead,
        group=GROUP,
        scope="admin",
        summary="Delete a dead letter",
        path_type=JobPath,
        path_example=ONE,
        replies={204: GONE},
        errors=("not-found",),
    ),
    Operation(
        method="POST",
        path="/api/v1/dead/{id}/replay",
        handler=dead.replay_dead,
        group=GROUP,
        scope="admin",
        summary="Bring one dead letter back",
        path_type=JobPath,
        path_example=ONE,
        replies={200: Reply(description="The job, ready again.", type=JobView, example=RETRIED)},
        errors=("not-found", "conflict"),
    ),
)
