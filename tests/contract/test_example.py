"""The shop of the examples: its code is what its contract gives, it passes its checks and its tests, and it runs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from accoda.cli.commands import accoda
from accoda.contract import generate, load
from accoda.contract.schema import schema

SHOP = Path(__file__).parents[2] / "examples" / "shop"
CONTRACT = SHOP / "contracts" / "queues.yaml"


def run(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("ACCODA_", "PYTEST_"))}
    command = [sys.executable, "-m", *words]
    return subprocess.run(command, cwd=SHOP, env=environment, capture_output=True, text=True, timeout=120)


def test_its_code_is_what_the_contract_gives_byte_for_byte() -> None:
    written = {file.name: file.read_bytes() for file in (SHOP / "shop" / "queues").glob("*.py")}
    assert written == {name: text.encode() for name, text in generate(load(CONTRACT), CONTRACT.name).items()}
    done = CliRunner().invoke(accoda, ["generate", str(CONTRACT), "--out", str(SHOP / "shop" / "queues"), "--check"])
    assert (done.exit_code, done.output) == (0, "")


def test_its_schema_is_the_one_of_the_format() -> None:
    assert json.loads((SHOP / "contracts" / "queues.schema.json").read_text()) == schema()


def test_it_runs_ends_by_itself_and_tells_what_happened() -> None:
    done = run("shop")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert "  new_orders  1001: accepted, tea, cup" in lines
    assert "  new_orders  1005: accepted at try 2, kettle" in lines
    assert "  emails      Order 1002 to ben@slow.example: sent" in lines
    assert any(line.startswith("  refused     emails: field 'user_id'") for line in lines)
    end = lines.index("6 emails were sent, 4 invoices written. Buried:")
    assert [line.split(": ", 1)[1] for line in lines[end + 1 :]] == [
        "there is no address 'nobody'",
        "there is no address 'nobody'",
        "an order needs items, and a price for each",
    ]
    shown = (SHOP / "README.md").read_text().split("Orders come in:\n")[1].split("  …")[0]
    assert done.stdout.startswith("Orders come in:\n" + shown)


def test_its_own_tests_pass() -> None:
    done = run("pytest", "-p", "no:cacheprovider", "tests")
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


@pytest.mark.parametrize(
    "words",
    [("mypy", "--strict", "shop", "tests"), ("ruff", "check", "."), ("ruff", "format", "--check", ".")],
    ids=lambda words: words[0],
)
def test_it_is_clean(words: tuple[str, ...]) -> None:
    done = run(*words)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_handler_that_does_not_fit_is_caught(tmp_path: Path) -> None:
    code = (SHOP / "shop" / "handlers.py").read_text()
    wrong = code.replace("jobs: list[InvoicesJob]", "jobs: list[EmailsJob]")
    assert wrong != code
    (tmp_path / "shop").mkdir()
    for file in (SHOP / "shop").rglob("*.py"):
        target = tmp_path / "shop" / file.relative_to(SHOP / "shop")
        target.parent.mkdir(exist_ok=True)
        target.write_text(wrong if file.name == "handlers.py" and file.parent.name == "shop" else file.read_text())
    command = [sys.executable, "-m", "mypy", "--strict", "shop/app.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert 'Argument "invoices" to "Handlers" has incompatible type "Invoices"' in done.stdout
