"""The curl lines of docs/http-workers.md run as printed, and its tables name every field."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from proof.service import ServiceRunner

from accoda import App
from accoda.http.settling import Again, Fail, Finish, GiveUp
from accoda.http.taking import TakenJob
from accoda.http.worker_api import TakeRequest

PAGE = (Path(__file__).parent.parent.parent / "docs" / "http-workers.md").read_text()


def test_the_lines_of_the_page_run_as_printed() -> None:
    if shutil.which("curl") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("curl is missing: the page cannot be tested")
        pytest.skip("curl is missing: the page is not tested")
    with ServiceRunner(App("memory://")) as service:
        service.post("/api/v1/jobs", {"queue": "emails", "payload": {"to": "anna@example.com"}})
        take, settle, extend = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
        [job] = run(take, service.url)["jobs"]
        assert run(extend, service.url, job["lease"]) == {"refused": []}
        assert run(settle, service.url, job["lease"]) == {"refused": []}
        assert run(settle, service.url, job["lease"])["refused"][0]["why"] == "lost"


def run(script: str, url: str, lease: str = "") -> Any:
    environment = os.environ | {"ACCODA": url, "LEASE": lease}
    done = subprocess.run(["sh", "-c", script], capture_output=True, env=environment, check=True, timeout=30)
    return json.loads(done.stdout)


@pytest.mark.parametrize("record", [TakenJob, TakeRequest, Finish, Again, GiveUp, Fail], ids=lambda r: r.__name__)
def test_the_page_names_every_field(record: type[msgspec.Struct]) -> None:
    for field in msgspec.structs.fields(record):
        assert f"`{field.encode_name}`" in PAGE, field.encode_name
