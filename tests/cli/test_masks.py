"""Two runs of the page are alike except for what must differ; a word that changes is seen."""

import pytest
from cli_masks import masked

PAGE = """## Look after

### accoda doctor

```console
$ accoda doctor --help
  --most N  [default: 20]
```

```console
$ accoda doctor
ok       library      SQLite 3.54.1
ok       disk         73.9 GiB free
note     queue        'deals' is paused
         → accoda queues deals resume

1 note.
```

### accoda worker

```console
$ accoda worker mailing:app
2030-01-01 09:00:00 INFO  emails  took 3 jobs in 0.611 s
```

### accoda tokens

```console
$ accoda tokens create ci
acc_0123456789_secret
```

### accoda jobs

```console
$ accoda jobs
id  queue
 1  emails
```
"""


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("SQLite 3.54.1", "SQLite 3.60"),
        ("ok       disk         73.9 GiB free", "warning  disk         9 MiB free\n         → make room"),
        ("1 note.", "1 warning, 1 note."),
        ("in 0.611 s", "in 66.398 s"),
        ("acc_0123456789_secret", "acc_ba98765432_other"),
    ],
)
def test_what_differs_from_run_to_run_is_alike(was: str, now: str) -> None:
    assert was in PAGE
    assert masked(PAGE.replace(was, now)) == masked(PAGE)


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("[default: 20]", "[default: 30]"),
        ("ok       library", "note     library"),
        ("note     queue        'deals' is paused\n", ""),
        ("accoda queues deals resume", "accoda queues deals open"),
        ("took 3 jobs", "took 3 tasks"),
        (" 1  emails", " 2  emails"),
        ("### accoda jobs", "### accoda job"),
    ],
)
def test_everything_else_is_compared_to_the_letter(was: str, now: str) -> None:
    assert was in PAGE
    assert masked(PAGE.replace(was, now)) != masked(PAGE)
