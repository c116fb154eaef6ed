"""Testing mode: an app's jobs in memory, with a clock that you move, and questions to ask afterwards.

def test_a_welcome_is_sent_the_next_day():
    with app.testing() as jobs:
        app.sync.enqueue("welcome", User("anna"), delay=86_400)
        jobs.assert_enqueued("welcome", User("anna"), delay=86_400)
        jobs.advance(days=1)
        jobs.sync.drain()
        assert jobs.payloads("welcome") == [User("anna")]
"""

from accoda.app_testing.runs import JobRun
from accoda.app_testing.trial import SyncTrial, TestedApp, Trial
from accoda.app_testing.waiting import Expected, WaitingJob

__all__ = ["Expected", "JobRun", "SyncTrial", "TestedApp", "Trial", "WaitingJob"]
