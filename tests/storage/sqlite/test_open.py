"""From a URL to a file."""

from pathlib import Path

import pytest

from accoda import InvalidInput, open_storage


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("sqlite://", "name a file"),
        ("sqlite:///", "name a file"),
        ("sqlite://host/q.db", "name a file"),
        ("sqlite:///:memory:", "use memory://"),
        ("sqlite:///q.db?durabilty=fast", "has no option 'durabilty'; it takes durability"),
        ("sqlite:///q.db?durability=yes", "option durability must be full or fast, not 'yes'"),
        ("memory://?x=1", "has no option 'x'; it takes none"),
        ("memory://name", "takes no name"),
        ("mysql://localhost", "there is no storage for mysql://; use one of memory://, sqlite://"),
        ("q.db", "must look like sqlite:///jobs.db, not 'q.db'"),
        (None, "must look like sqlite:///jobs.db, not None"),
    ],
)
async def test_a_url_that_cannot_be_used_says_what_to_write(url: str, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        await open_storage(url)
    assert message in str(caught.value)
    assert caught.value.field == "url"


async def test_a_relative_path_and_escaped_characters_are_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with await open_storage("sqlite:///my%20queue%3F.db"):
        pass
    assert (tmp_path / "my queue?.db").exists()
