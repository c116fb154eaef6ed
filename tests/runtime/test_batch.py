"""From the jobs of a take to batches, and from what handlers said to outcomes."""

from typing import Any

from tests.runtime.batches import Owner

from accoda.envelope import JobMetadata, wrap
from accoda.model import Bury, Done, Job, Lease, NewJob, Retry
from accoda.payload import Codec, encode
from accoda.retry import Fixed, Limits
from accoda.runtime.batch import BatchRun, open_jobs


def job(id: int, data: bytes = encode(7), crashes: int = 0, tries: int = 0, waited: int = 3_600_000) -> Job:
    """A job whose last two start times are `waited` milliseconds apart."""
    attempts = crashes + tries
    lease = Lease("q", id, attempts, 0)
    return Job(id, "q", data, 0.0, 0, None, attempts, 0, waited, 0, 0, lease, tries, crashes)


def ids(batches: list[BatchRun]) -> list[list[int]]:
    return [batch.ids() for batch in batches]


def test_jobs_that_lost_no_lease_are_one_batch_with_their_payloads() -> None:
    enveloped = wrap(encode(8), JobMetadata(name="Eight"))
    opened = open_jobs(Owner(), [job(1), job(2, enveloped), job(3, tries=2)])
    (batch,) = opened.batches
    assert [(one.id, one.payload, one.name) for one in batch] == [(1, 7, None), (2, 8, "Eight"), (3, 7, None)]
    assert not opened.suspects and not opened.not_run


def test_a_payload_that_does_not_decode_is_buried_alone_and_the_reason_names_the_field() -> None:
    owner = Owner()
    owner.codec = Codec[Any](dict[str, int])
    opened = open_jobs(owner, [job(1, encode({"a": 1})), job(2, encode({"a": "x"})), job(3, b"")])
    assert ids(opened.batches) == [[1]]
    assert [outcome.lease.id for outcome in opened.not_run] == [2, 3]
    assert "[…] must be an integer, not text" in opened.not_run[0].reason  # type: ignore[union-attr]


def test_an_envelope_that_cannot_be_read_is_buried_each_time_it_comes() -> None:
    broken = wrap(encode(8), JobMetadata(name="Eight")).replace(b"\xa5Eight", b"\x05Eight")  # a number, not a text
    owner = Owner()
    owner.open_bare = owner.codec.decode_bare  # as a worker has it
    opened = open_jobs(owner, [job(1, broken), job(2, broken), job(3)])
    assert ids(opened.batches) == [[3]]
    assert [(type(outcome), outcome.lease.id) for outcome in opened.not_run] == [(Bury, 1), (Bury, 2)]


def test_suspects_run_after_the_others_each_alone_and_after_its_pause() -> None:
    owner = Owner(limits=Limits(max_crashes=5))
    jobs = [job(1, crashes=4), job(2), job(3, crashes=1, waited=0), job(4, crashes=3), job(5, crashes=2, waited=9_999)]
    opened = open_jobs(owner, [*jobs, job(6, crashes=5, waited=0), job(7)])
    assert ids(opened.batches) == [[2, 7]] and ids(opened.suspects) == [[3], [4], [1]]
    assert [(type(outcome), outcome.lease.id) for outcome in opened.not_run] == [(Retry, 5), (Bury, 6)]


def test_outcomes_are_those_of_which_something_was_said_and_that_are_not_settled() -> None:
    (batch,) = open_jobs(Owner(limits=Limits(rule=Fixed(9))), [job(n) for n in range(5)]).batches
    batch.done(batch[0])
    batch.fail(batch[1], ValueError("no"))
    batch.bury(batch[2], "enough")
    batch.done(batch[3])
    batch.settled.add(3)
    assert batch.outcomes() == [
        Done(batch.taken[0].lease),
        Retry(batch.taken[1].lease, delay=9.0, reason="ValueError: no"),
        Bury(batch.taken[2].lease, "enough"),
    ]


def test_follow_ups_go_with_jobs_that_are_done_only() -> None:
    (batch,) = open_jobs(Owner(), [job(1), job(2)]).batches
    for one in batch:
        batch.then(one, NewJob("next"))
    batch.done(batch[0], "kept")
    batch.bury(batch[1], "enough")
    done, buried = batch.outcomes()
    assert done == Done(batch.taken[0].lease, (NewJob("next"),), encode("kept"))
    assert buried == Bury(batch.taken[1].lease, "enough")
