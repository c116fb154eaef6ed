"""The suite that every storage passes. A storage author gives a fixture `world` and imports everything:

    from accoda.testing.conformance import *

Each test class becomes a part of the importing test file; the fixture `store` is a handle on that world's store.
"""

from accoda.testing.conformance.base import store
from accoda.testing.conformance.combined import (
    TestCombined,
)
from accoda.testing.conformance.content import (
    TestContent,
)
from accoda.testing.conformance.documents import (
    TestDocuments,
    TestPrefix,
    TestTimeToLive,
)
from accoda.testing.conformance.enqueue import (
    TestEnqueue,
    TestOrder,
    TestStartTime,
)
from accoda.testing.conformance.fresh import (
    TestCrashes,
    TestFreshStart,
)
from accoda.testing.conformance.inspector import (
    TestBrowse,
    TestFind,
    TestPurge,
    TestRemove,
    TestRevive,
)
from accoda.testing.conformance.keys import (
    TestKeys,
)
from accoda.testing.conformance.leases import (
    TestExtend,
    TestRerank,
    TestWaiters,
)
from accoda.testing.conformance.life import (
    TestClose,
    TestInvalidInput,
)
from accoda.testing.conformance.outcomes import TestBury, TestDone, TestKeptResults, TestRetry
from accoda.testing.conformance.pause import (
    TestPause,
)
from accoda.testing.conformance.peek import (
    TestDrop,
    TestDropRaces,
    TestPeek,
    TestPeekAtAKey,
    TestPeekAtWaiters,
)
from accoda.testing.conformance.place import (
    TestPlace,
    TestPlaceAndWhatIsDue,
    TestPlaceInALongLine,
    TestPlaceNearTheEnds,
)
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
)
from accoda.testing.conformance.races import (
    TestHandlesRace,
    TestProcessesRace,
    TestTasksRace,
    TestThreadsRace,
)
from accoda.testing.conformance.retention import (
    TestGrowth,
    TestRetention,
)
from accoda.testing.conformance.settle import TestGrown, TestSettle
from accoda.testing.conformance.start_now import TestStartNow, TestStartNowRaces
from accoda.testing.conformance.stats import (
    TestOldestAge,
    TestStats,
)
from accoda.testing.conformance.storms import (
    TestStorm,
    TestStormOfAPausedQueue,
)
from accoda.testing.conformance.take import (
    TestCost,
    TestLeaseEnd,
    TestTake,
)
from accoda.testing.conformance.wait import (
    TestWait,
    TestWaitOfAnotherHandle,
    TestWaitOfAPausedQueue,
)

__all__ = [
    "TestBrowse",
    "TestBury",
    "TestClose",
    "TestCombined",
    "TestContent",
    "TestCost",
    "TestCrashes",
    "TestDocuments",
    "TestDone",
    "TestDrop",
    "TestDropRaces",
    "TestEnqueue",
    "TestExtend",
    "TestFind",
    "TestFreshStart",
    "TestGrown",
    "TestGrowth",
    "TestHandlesRace",
    "TestInvalidInput",
    "TestKeptResults",
    "TestKeys",
    "TestLeaseEnd",
    "TestOldestAge",
    "TestOrder",
    "TestPause",
    "TestPeek",
    "TestPeekAtAKey",
    "TestPeekAtWaiters",
    "TestPlace",
    "TestPlaceAndWhatIsDue",
    "TestPlaceInALongLine",
    "TestPlaceNearTheEnds",
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
    "TestPurge",
    "TestRemove",
    "TestRerank",
    "TestRetention",
    "TestRetry",
    "TestRevive",
    "TestSettle",
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
    "TestWait",
    "TestWaitOfAPausedQueue",
    "TestWaitOfAnotherHandle",
    "TestWaiters",
    "store",
]
