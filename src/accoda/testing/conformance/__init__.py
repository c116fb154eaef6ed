"""The suite that every storage passes. A storage author writes a pytest fixture `fixture` that
gives a `StoreFixture`, and imports everything:

    from accoda.testing.conformance import *

Each test class becomes a part of the importing test file; the fixture `store` is a handle on the store under test.
"""

from accoda.testing.conformance.ahead import TestAhead, TestAheadAndWhatIsDue, TestAheadInALongLine
from accoda.testing.conformance.base import store
from accoda.testing.conformance.browse import TestBrowse, TestBrowseById, TestBrowseInLine
from accoda.testing.conformance.cancel import TestCancel, TestCancelRaces, TestLateHolderOfACancelledJob
from accoda.testing.conformance.change import (
    TestChange,
    TestRemove,
    TestRemoveRaces,
    TestRerank,
    TestRevive,
)
from accoda.testing.conformance.combined import TestCombined
from accoda.testing.conformance.content import TestContent
from accoda.testing.conformance.documents import TestDocuments, TestPrefix, TestTimeToLive
from accoda.testing.conformance.enqueue import TestEnqueue, TestOrder, TestStartTime
from accoda.testing.conformance.extend import TestExtend
from accoda.testing.conformance.keys import TestKeys
from accoda.testing.conformance.lanes import (
    TestFairLanes,
    TestLaneLimit,
    TestLaneRaces,
    TestLanesInfo,
    TestLaneStorm,
    TestPlaceInALane,
    TestSharedLimits,
    TestTotal,
)
from accoda.testing.conformance.life import TestClose, TestInvalidInput
from accoda.testing.conformance.look import TestLook, TestLookAtAKey, TestLookAtTheHead, TestLookAtWaiters
from accoda.testing.conformance.outcomes import TestBury, TestDone, TestKeptResults, TestRetry
from accoda.testing.conformance.pause import TestPause
from accoda.testing.conformance.promises import (
    TestPromise01AJobIsNeverLeasedToTwoTakers,
    TestPromise02NothingIsLost,
    TestPromise03ALateHolderChangesNothing,
    TestPromise04JobsGoByRankThenId,
    TestPromise05TheStoresClockDecides,
    TestPromise06OneStepForAWholeBatch,
    TestPromise07TheHeadIsNeverSkipped,
    TestPromise08OneJobForAKeyAndNoWaiterIsForgotten,
    TestPromise09StatisticsAreNoScan,
    TestPromise10OneOperationCostsAtMostLogN,
    TestPromise11AFlowHearsOfEveryEnd,
    TestPromise12ALaneIsNeverOverfullNorStuck,
)
from accoda.testing.conformance.purge import TestGrowth, TestPurge, TestRetention
from accoda.testing.conformance.races import TestHandlesRace, TestProcessesRace, TestTasksRace, TestThreadsRace
from accoda.testing.conformance.reports import TestReports, TestReportsOfMany, TestRetryWithFollowUps
from accoda.testing.conformance.settle import TestGrown, TestSettle
from accoda.testing.conformance.start_now import TestStartNow, TestStartNowRaces
from accoda.testing.conformance.stats import TestOldestAge, TestPromoted, TestStats
from accoda.testing.conformance.storms import TestStorm, TestStormOfAPausedQueue
from accoda.testing.conformance.take import TestCost, TestLeaseEnd, TestTake
from accoda.testing.conformance.tries import TestBeginningAgain, TestCrashes, TestTries
from accoda.testing.conformance.wait import TestWait, TestWaitOfAnotherHandle, TestWaitOfAPausedQueue

__all__ = [
    "TestAhead",
    "TestAheadAndWhatIsDue",
    "TestAheadInALongLine",
    "TestBeginningAgain",
    "TestBrowse",
    "TestBrowseById",
    "TestBrowseInLine",
    "TestBury",
    "TestCancel",
    "TestCancelRaces",
    "TestChange",
    "TestClose",
    "TestCombined",
    "TestContent",
    "TestCost",
    "TestCrashes",
    "TestDocuments",
    "TestDone",
    "TestEnqueue",
    "TestExtend",
    "TestFairLanes",
    "TestGrown",
    "TestGrowth",
    "TestHandlesRace",
    "TestInvalidInput",
    "TestKeptResults",
    "TestKeys",
    "TestLaneLimit",
    "TestLaneRaces",
    "TestLaneStorm",
    "TestLanesInfo",
    "TestLateHolderOfACancelledJob",
    "TestLeaseEnd",
    "TestLook",
    "TestLookAtAKey",
    "TestLookAtTheHead",
    "TestLookAtWaiters",
    "TestOldestAge",
    "TestOrder",
    "TestPause",
    "TestPlaceInALane",
    "TestPrefix",
    "TestProcessesRace",
    "TestPromise01AJobIsNeverLeasedToTwoTakers",
    "TestPromise02NothingIsLost",
    "TestPromise03ALateHolderChangesNothing",
    "TestPromise04JobsGoByRankThenId",
    "TestPromise05TheStoresClockDecides",
    "TestPromise06OneStepForAWholeBatch",
    "TestPromise07TheHeadIsNeverSkipped",
    "TestPromise08OneJobForAKeyAndNoWaiterIsForgotten",
    "TestPromise09StatisticsAreNoScan",
    "TestPromise10OneOperationCostsAtMostLogN",
    "TestPromise11AFlowHearsOfEveryEnd",
    "TestPromise12ALaneIsNeverOverfullNorStuck",
    "TestPromoted",
    "TestPurge",
    "TestRemove",
    "TestRemoveRaces",
    "TestReports",
    "TestReportsOfMany",
    "TestRerank",
    "TestRetention",
    "TestRetry",
    "TestRetryWithFollowUps",
    "TestRevive",
    "TestSettle",
    "TestSharedLimits",
    "TestStartNow",
    "TestStartNowRaces",
    "TestStartTime",
    "TestStats",
    "TestStorm",
    "TestStormOfAPausedQueue",
    "TestTake",
    "TestTasksRace",
    "TestThreadsRace",
    "TestTimeToLive",
    "TestTotal",
    "TestTries",
    "TestWait",
    "TestWaitOfAPausedQueue",
    "TestWaitOfAnotherHandle",
    "store",
]
