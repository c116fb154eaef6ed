"""Testing mode, as a user's tests see it."""

from collections.abc import Iterator

import msgspec
import pytest

from accoda import App, RetryLater, Trial


class User(msgspec.Struct):
    name: str


app = App("sqlite:////nowhere/that/exists.db")  # testing mode never opens it


@app.handler("welcome", retry=60, max_attempts=3)
async def welcome(user: User) -> str:
    if user.name == "nobody":
        raise ValueError("no such user")
    if user.name == "later":
        raise RetryLater(delay=10)
    return user.name


@pytest.fixture
def jobs() -> Iterator[Trial]:
    with app.testing() as trial:
        yield trial


def test_time_travel_without_await(jobs: Trial) -> None:
    app.sync.enqueue("welcome", User("anna"), delay=86_400)
    app.sync.run_until_idle()
    assert jobs.runs("welcome") == []
    jobs.advance(days=1)
    app.sync.run_until_idle()
    assert jobs.payloads("welcome") == [User("anna")]
    jobs.assert_no_failures()


async def test_retries_follow_the_clock_and_end_among_the_dead(jobs: Trial) -> None:
    await welcome.enqueue(User("nobody"))
    for _ in range(3):
        await app.run_until_idle()
        jobs.advance(minutes=1)
    assert [run.ended for run in jobs.runs()] == ["failed"] * 3
    dead = jobs.assert_dead("welcome", "no such user")
    assert dead.attempts == 2
    with pytest.raises(AssertionError, match="failed: ValueError"):
        jobs.assert_no_failures()


async def test_what_waits_can_be_asked_for(jobs: Trial) -> None:
    await welcome.enqueue(User("anna"))
    await welcome.enqueue(User("ben"), delay=60)
    assert [job.payload for job in jobs.waiting("welcome")] == [User("anna"), User("ben")]
    jobs.assert_enqueued("welcome", User("ben"), count=1)
    with pytest.raises(AssertionError, match="waiting in welcome:"):
        jobs.assert_enqueued("welcome", User("carla"))
    with pytest.raises(AssertionError, match="dead are: none"):
        jobs.assert_dead("welcome")


async def test_the_app_is_as_before_afterwards() -> None:
    connections = app.connections
    async with app.testing() as trial:
        assert app.connections is not connections
        with pytest.raises(RuntimeError, match="under way"):
            trial.__enter__()
    assert app.connections is connections
    assert app.middleware == ()
