"""The service does what its OpenAPI document says: a short run of schemathesis on every operation."""

from pathlib import Path

import pytest

from accoda.http.table import operations

pytest.importorskip("schemathesis")
contract = pytest.importorskip("contract", reason="tests/http is on the path by its conftest")


EVERY = "examples,coverage,fuzzing,stateful"


# The coverage phase is most of the time and asks nothing of the store that the others do not: once is enough.
@pytest.mark.timeout(400)  # thousands of requests: seconds alone, minutes on a busy machine
@pytest.mark.parametrize(("store", "phases"), [("memory", EVERY), ("sqlite", "fuzzing,stateful")])
def test_the_service_keeps_to_its_document_whatever_it_is_sent(store: str, phases: str, tmp_path: Path) -> None:
    url = "memory://" if store == "memory" else f"sqlite:///{tmp_path}/jobs.db"
    runner, _ = contract.serve(url)
    with runner as service:
        # A fixed seed: a short run finds the same on every machine. The long one by hand looks elsewhere each time.
        options = ("--phases", phases, "--max-examples", "3", "--seed", "1")
        figures = contract.run(service, *options, limit=350)
    assert figures.code == 0, figures.text
    assert figures.operations == sum(not operation.hidden for operation in operations())
    assert figures.cases > 100
