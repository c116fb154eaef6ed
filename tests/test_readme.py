"""What the README shows is what happens."""

import re
import subprocess
import sys
from pathlib import Path

from accoda import Done, NewJob, open_storage

ROOT = Path(__file__).parent.parent
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
PYTHON = [text for language, text in BLOCKS if language == "python"]
PLAIN = [text for language, text in BLOCKS if not language]


def test_the_thirty_second_example_prints_what_it_says(tmp_path: Path) -> None:
    (tmp_path / "example.py").write_text(PYTHON[0])
    run = subprocess.run([sys.executable, "example.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    assert run.stdout == PLAIN[1]


async def test_the_example_of_shared_jobs_does_what_it_says() -> None:
    async with await open_storage("memory://") as store:
        body = "\n".join("    " + line for line in PYTHON[1].splitlines())
        scope = {"store": store, "NewJob": NewJob, "Done": Done}
        exec(f"async def example():\n{body}\n    return names", scope)
        assert await scope["example"]() == [b"anna", b"ben"]
        assert (await store.stats()).queues["deals.deliver"].ready == 2


def test_every_link_of_the_pages_leads_somewhere() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    for page in pages:
        for target in re.findall(r"\]\(([^)#:]+?)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
        if page.name == "architecture.md":
            for path in re.findall(r"^\| `((?:src|benchmarks|docs)/[^`]+)`", page.read_text(), re.MULTILINE):
                assert (ROOT / path).exists(), f"architecture.md names {path}"
