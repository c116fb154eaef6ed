from collections.abc import Iterator

import pytest
from shop.jobs import mail

from accoda import Trial


@pytest.fixture(autouse=True)
def nothing_leaves_the_process(accoda_jobs: Trial) -> Iterator[None]:
    """Every test has its jobs in memory, also one that does not ask for them."""
    yield
    mail.sent.clear()
    mail.greylisted = False
