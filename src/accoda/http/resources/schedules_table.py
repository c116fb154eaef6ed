"""The operations of `/api/v1/schedules`, in words. What they do is in `schedules.py`."""

from __future__ import annotations

from typing import Any

from accoda.admin.schedules import ScheduleView
from accoda.http.operation import Header, Link, Operation, Reply
from accoda.http.resources import schedules
from accoda.http.resources.common import GONE, Items
from accoda.model import Enqueued

GROUP = "Schedules"
REPORT = {"queue": "reports", "cron": "0 7 * * MON-FRI", "tz": "Europe/Rome", "payload": {"kind": "daily"}}
VIEW = ScheduleView(
    name="daily-report",
    state="active",
    words="at 07:00, Monday to Friday, Europe/Rome",
    queue="reports",
    cron="0 7 * * MON-FRI",
    tz="Europe/Rome",
    payload={"kind": "daily"},
    priority="NORMAL",
    catch_up="once",
    catch_up_limit=100,
    overlap="allow",
    source="api",
    next_at="2030-01-01T06:00:00.000Z",
    upcoming=["2030-01-01T06:00:00.000Z", "2030-01-02T06:00:00.000Z"],
)
ONE = {"name": "daily-report"}
RULES: dict[str, Any] = {"oneOf": [{"title": name, "required": [name]} for name in ("cron", "every")]}
AFTER = tuple(
    Link(name, {"name": "$response.body#/name"})
    for name in (
        "getSchedule",
        "changeSchedule",
        "triggerSchedule",
        "pauseSchedule",
        "resumeSchedule",
        "deleteSchedule",
    )
)

OPERATIONS = (
    Operation(
        method="POST",
        path="/api/v1/schedules",
        handler=schedules.create_schedule,
        group=GROUP,
        scope="admin",
        summary="Create a schedule",
        description="However many services and workers run, each tick gets exactly one job, also through crashes.",
        request=schedules.NewSchedule,
        rules=RULES,
        example={"name": "daily-report", **REPORT},
        replies={
            201: Reply(
                description="It is stored.",
                type=ScheduleView,
                example=VIEW,
                headers=(Header(name="Location", description="The path of the schedule."),),
                links=AFTER,
            )
        },
        errors=("conflict",),
    ),
    Operation(
        method="GET",
        path="/api/v1/schedules",
        handler=schedules.list_schedules,
        group=GROUP,
        summary="List schedules",
        description="By name, each in words and with its next ticks.",
        replies={200: Reply(description="The schedules.", type=Items[ScheduleView], example=Items([VIEW]))},
    ),
    Operation(
        method="GET",
        path="/api/v1/schedules/{name}",
        handler=schedules.get_schedule,
        group=GROUP,
        summary="One schedule",
        path_type=schedules.SchedulePath,
        path_example=ONE,
        replies={200: Reply(description="The schedule.", type=ScheduleView, example=VIEW)},
        errors=("not-found",),
    ),
    Operation(
        method="PUT",
        path="/api/v1/schedules/{name}",
        handler=schedules.put_schedule,
        group=GROUP,
        scope="admin",
        summary="Create a schedule, or put another in its place",
        description="What is not said is as if it had never been said.",
        path_type=schedules.SchedulePath,
        path_example=ONE,
        request=schedules.ScheduleSpec,
        rules=RULES,
        example=REPORT,
        replies={200: Reply(description="The schedule.", type=ScheduleView, example=VIEW, links=AFTER)},
        errors=("conflict",),
    ),
    Operation(
        method="PATCH",
        path="/api/v1/schedules/{name}",
        handler=schedules.change_schedule,
        group=GROUP,
        scope="admin",
        summary="Change a schedule",
        description="What is not said stays as it is. null takes back what was said.",
        path_type=schedules.SchedulePath,
        path_example=ONE,
        request=schedules.ScheduleChange,
        rules={"not": {"required": ["cron", "every"]}},
        example={"cron": "30 6 * * *"},
        replies={200: Reply(description="The schedule.", type=ScheduleView, example=VIEW)},
        errors=("not-found", "conflict"),
    ),
    Operation(
        method="DELETE",
        path="/api/v1/schedules/{name}",
        handler=schedules.delete_schedule,
        group=GROUP,
        scope="admin",
        summary="Delete a schedule",
        description="Jobs that it has made stay. One that is declared in code comes back with the next worker that "
        "starts.",
        path_type=schedules.SchedulePath,
        path_example=ONE,
        replies={204: GONE},
        errors=("not-found",),
    ),
    Operation(
        method="POST",
        path="/api/v1/schedules/{name}/trigger",
        handler=schedules.trigger_schedule,
        group=GROUP,
        scope="admin",
        summary="Make a schedule's job now",
        description="Nothing else changes. Its overlap policy holds: where its last job has not ended, that is kept or "
        "replaced as the policy says, and the answer is 200 with its id.",
        path_type=schedules.SchedulePath,
        path_example=ONE,
        replies={
            201: Reply(
                description="The job.",
                type=Enqueued,
                example=Enqueued(43, "created"),
                headers=(Header(name="Location", description="The path of the job."),),
            ),
            200: Reply(
                description="Its last job had not ended; `what` says what became of that.",
                type=Enqueued,
                example=Enqueued(42, "kept"),
                headers=(Header(name="Location", description="The path of the job."),),
            ),
        },
        errors=("not-found", "conflict"),
    ),
    Operation(
        method="POST",
        path="/api/v1/schedules/{name}/pause",
        handler=schedules.pause_schedule,
        group=GROUP,
        scope="admin",
        summary="Pause a schedule",
        path_type=schedules.SchedulePath,
        path_example=ONE,
        replies={200: Reply(description="The schedule.", type=ScheduleView, example=VIEW)},
        errors=("not-found", "conflict"),
    ),
    Operation(
        method="POST",
        path="/api/v1/schedules/{name}/resume",
        handler=schedules.resume_schedule,
        group=GROUP,
        scope="admin",
        summary="Let a schedule go on",
        description="With its first tick from now: what came due in between is not made up for.",
        path_type=schedules.SchedulePath,
        path_example=ONE,
        replies={200: Reply(description="The schedule.", type=ScheduleView, example=VIEW)},
        errors=("not-found", "conflict"),
    ),
)
