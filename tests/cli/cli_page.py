"""Writes docs/cli.md from what the commands print: `python tests/cli/cli_page.py --write`.

Each command runs in a copy of one prepared folder, in this process, with a clock that stands still and 80 columns;
`worker` and `serve` run in processes of their own (cli_runs.py), and they and `doctor` by the machine's clock.
Nothing is typed by hand, folded or masked here. What differs from run to run is masked where two pages are compared
(cli_masks.py).
"""

import re
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click
from cli_flows import build_flows
from cli_lanes import build_lanes
from cli_runs import Run, serve, worker
from cli_world import World, build, visit

from accoda.cli.commands import COMMANDS, SECTIONS, accoda
from accoda.cli.groups import Nouns

PAGE = Path(__file__).parent.parent.parent / "docs" / "cli.md"
REGENERATE = "python tests/cli/cli_page.py --write"

HEAD = f"""# The command line

<!-- Written by `{REGENERATE}`; a test holds it to what the commands print. -->

`pip install 'accoda[cli]'` gives the command `accoda`. Everything on this page was printed by it, in 80 columns.
Rates, versions, tokens and the like are those of one run.

- **Which store**: `--url`, else the URL of `--app MODULE:APP`, else `ACCODA_URL`, else `accoda.db` in this folder if it
  exists. Commands that only read never create a store: a missing SQLite file is an error. `accoda migrate` creates one,
  and so does `accoda enqueue --url`.
- **`--app MODULE:APP`** tells a command about the handlers: their priority policies, budgets and secret fields.
  `ACCODA_APP` says it once for all commands, and for those that take it as an argument.
- **`--json`** prints one JSON document with the names of the [HTTP API](http.md) instead of a table. Lists that come in
  pages are `{{"items": […], "next": "…"}}`; give `next` to `--cursor`.
- **Without a terminal** (in a pipe, in CI) there are no colours, no bars and no questions; tables are laid out for 80
  columns, or for `COLUMNS`. `NO_COLOR` switches colours off everywhere. Long texts end in `…`, ids never do.
- **Commands that destroy something ask first**; `--yes` answers. Without a terminal they refuse without it.
- **Errors** go to standard error and say what to do. On a terminal, or if `COLUMNS` is set, they and all other
  sentences are wrapped; in a pipe each is one line, for a program or a log to find.

| exit code | meaning |
| --- | --- |
| 0 | done |
| 1 | the answer is no: not found, the job failed, the filter matched nothing, something is wrong |
| 2 | wrong use: an unknown option, a value that cannot be used, a question without a terminal to ask it on |
| 3 | the store cannot be reached or used |
| 130, 141 | stopped by Ctrl-C; the reader of the output has gone (`accoda jobs \\| head -1`) |

`accoda worker`, `accoda doctor` and `accoda contract diff` have more exit codes: see their help.

Words are completed in a shell after `eval "$(accoda completion bash)"` (or `zsh`; for fish see below): commands,
options, the names of queues and the ids of flows, if the store answers within 0.3 seconds.

## accoda
"""

# What is typed after each command's help. A command begins with the store as it was prepared; what one line changes,
# the next one sees.
EXAMPLES: dict[str, list[str]] = {
    "": ["queus", "jobs --sate dead", "jobs --url sqlite:///nothing.db"],
    "enqueue": [
        """enqueue emails '{"to": "anna@example.com"}' --priority high""",
        """enqueue emails '{"to": "anna@example.com", "card": "4111"}' --secret card""",
        "enqueue reports 2031 --at 2032-01-01T00:00:00Z --name 'Report of 2031'",
        "enqueue emails '{}' --key welcome/elena",
        "enqueue emails --lines --file people.jsonl",
        "enqueue emails --lines --file wrong.jsonl",
        "enqueue emails '{to: anna}'",
        "enqueue emails 1 --delay soon",
        "enqueue accoda.schedules 1",
    ],
    "jobs": [
        "jobs",
        "jobs --queue emails --state dead --limit 2",
        "jobs --state running",
        "jobs --state delayed",
        "jobs --priority high --json",
        "jobs --error TimeoutError",
        "jobs --queue emials",
        "jobs --state dead --queue deals",
    ],
    "job": [
        "job 9",
        "job 10",
        "job 3",
        "job 1 result",
        "job 1 follow",
        "job 9 priority critical",
        "job 9 cancel",
        "job 3 retry",
        "job 14",
        "job 14 retry",
        "job 14",
        "job 1 retry",
        "job 2 delete",
        "job 2 delete --yes",
        "job 99",
        "job 10 retyr",
    ],
    "why": [
        "why 12",
        "why 13",
        "why 9",
        "why 10",
        "why 3",
        "why 1",
        "why 13 --json",
        "why 99",
    ],
    "dead": [
        "dead",
        "dead groups",
        "dead replay --fingerprint 2842ec05d79c --dry-run",
        "dead replay --queue emails --dry-run",
        "dead replay --queue emails",
        "dead replay --queue emails --rate 100 --yes",
        "dead delete --queue emails --yes",
    ],
    "flows": [
        "flows",
        "flows --state failed --json",
        "flows --state faild",
        "flows retry order-17",
        "flows retry night-31",
        "flows cancel import-2030",
        "flows close mailing-1",
        "flows cancel ordr-17",
    ],
    "flow": [
        "flow order-17",
        "flow import-2030",
        "flow mailing-1",
        "why order-17/ship",
        "why import-2030/sum",
        "why import-2030/load-298",
        "job 25",
        "flow order-71",
        "why order-17/packing",
    ],
    "queues": [
        "queues",
        "queues emails",
        "queues emails pause --for 2h --note 'the mail server is being moved'",
        "queues emails resume",
        "queues emails pause",
        "queues",
        "queues deals resume",
        "queues emails purge --state dead",
        "queues emails purge --state dead --older-than 100m --yes",
        "queues emails purge --state dead --yes",
        "queues emails purge --state dead --yes",
        "queues emials pause",
    ],
    "lanes": [
        "lanes mailings",
        "jobs --queue mailings --lane customer-7 --state held --limit 2",
        "why 20",
        "job 20",
        "lanes mailings --lane customer-7 --limit 4",
        "lanes mailings --lane customer-3 --limit 0",
        "lanes mailings --total 10 --no-fair --shared shop --limit-rows 0",
        "lanes mailings --reset --lane customer-7 --yes --json --limit-rows 1",
        "queues mailings",
        "queues",
        "top --once",
        "lanes mailngs",
        "lanes mailings --limit many",
        "lanes mailings --weight 2",
        "lanes mailings --reset",
    ],
    "budgets": ["budgets", "budgets keepa", "budgets keepa log"],
    "demands": [
        "demands prices request Informatica automation-7 --tier pro --app shop:app",
        "demands prices request Informatica automation-8 --due 2030-01-31T09:05:00Z --app shop:app",
        "demands",
        "demands prices",
        "demands prices waiters Informatica",
        "job 18",
        "demands prices leave Informatica automation-8 --app shop:app",
        "demands prices leave Informatica automation-7",
    ],
    "top": ["top --once"],
    "workers": ["workers", "workers drain post", "workers", "workers undrain shop-1:4711", "workers drain nobody"],
    "migrate": ["migrate sqlite:///jobs.db", "migrate mysql://localhost/jobs"],
    "settings": ["settings"],
    "generate": ["generate queues.yaml --out queues"],
    "contract": [
        "contract check queues.yaml",
        "contract diff queues.yaml new.yaml",
    ],
    "doctor": ["doctor"],
    "completion": ["completion bash"],
    "tokens": [
        "tokens",
        "tokens create build-server --scope enqueue --scope read --expires 90d",
        "tokens list",
        "tokens revoke TOKEN_ID",
        "tokens revoke TOKEN_ID --yes",
        "tokens revoke TOKEN_ID --yes",
        "tokens create anna --scope everything",
    ],
    "schedules": [
        "schedules",
        "schedules add poll --every 6h --queue deals",
        "schedules",
        "schedules show poll",
        "schedules add report --cron '0 7 * * MON-FRI' --tz Europe/Rome --queue reports",
        "schedules add report --every 1h",
        "schedules pause report",
        "schedules resume report",
        "schedules trigger report",
        "schedules delete report",
        "schedules delete report --yes",
        "schedules apply schedules.toml",
        "schedules apply schedules.toml",
        "schedules",
        "schedules apply wrong.toml",
        "schedules check '0 7 * * MON-FRI' --tz Europe/Rome",
        "schedules add night --cron '0 25 * * *' --queue deals",
    ],
    "webhooks": [
        "webhooks",
        "webhooks show 15",
        "webhooks redeliver 15",
        "webhooks list --state ready",
        "webhooks secret",
        "webhooks secret --rotate",
        "webhooks secret --rotate --yes",
        "webhooks test http://127.0.0.1/hook",
    ],
    "serve": ["serve --max-body plenty"],
}

# Those that run in a process of their own.
Runs = Callable[[Path], list[Run]]


def page(prepared: Path, scratch: Path) -> str:
    """The whole page."""
    parts = [HEAD]
    own: dict[str, Runs] = {"worker": worker, "serve": serve}
    with visit(prepared, scratch / "accoda", 80) as world:
        parts += [block(world, line) for line in ("--help", *EXAMPLES[""])]
    for title, section in SECTIONS.items():
        parts.append(f"\n## {title}\n")
        for name in section:
            folder = folder_of(name, prepared, scratch)
            with visit(folder, scratch / name, 80) as world:
                parts += list(chapter(world, name, own.get(name)))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts))


def folder_of(name: str, prepared: Path, scratch: Path) -> Path:
    """Where a command's examples are run."""
    if name in ("doctor", "serve"):
        return present(scratch)
    if name in ("flow", "flows"):
        folder = scratch / "with-flows"
        return folder if folder.exists() else build_flows(prepared, folder)
    if name == "lanes":
        return build_lanes(prepared, scratch / "with-lanes")
    return prepared


def present(scratch: Path) -> Path:
    """The shop as it would be now, for commands that use the machine's clock; only this user may read its store."""
    folder = scratch / "present"
    if not folder.exists():
        folder.mkdir()
        build(folder, round(time.time() * 1000))
        (folder / "accoda.db").chmod(0o600)
    return folder


def chapter(world: World, name: str, own: Runs | None) -> Iterator[str]:
    """One command: its help, that of its commands, and what it prints."""
    yield f"\n### accoda {name}\n"
    for line in helps(name):
        yield block(world, line)
    if own is not None:
        yield from as_blocks(name, own(Path.cwd()))
    token = ""
    for line in EXAMPLES.get(name, ()):
        told = block(world, line.replace("TOKEN_ID", token))
        token = next(iter(re.findall(r"\bacc_([0-9a-f]+)_", told)), token)
        yield told


def helps(name: str) -> Iterator[str]:
    """The lines that print a command's help, and those of the commands in it."""
    command = accoda.get_command(click.Context(accoda), name)
    assert command is not None
    # click keeps the help option of the first call, and a test may have called outside of the group.
    for each in (command, *(command.commands.values() if isinstance(command, click.Group) else ())):
        each._help_option = None
    yield f"{name} --help"
    if isinstance(command, click.Group):
        for each in command.commands:
            if isinstance(command, Nouns):
                words = {"list": "", "show": f"{command.noun} "}.get(each, f"{command.noun} {each} ")
                if each != "list":
                    yield f"{name} {words}--help"
            else:
                yield f"{name} {each} --help"


def block(world: World, line: str) -> str:
    """A line that is typed, and what comes back."""
    result = world.run(*shlex.split(line))
    code = f"\n(exit code {result.exit_code})" if result.exit_code else ""
    return as_block([Run(f"accoda {line}", result.output.rstrip() + code)])


def as_blocks(name: str, runs: list[Run]) -> Iterator[str]:
    """One for each run; those of a service belong together."""
    for group in [runs] if name == "serve" else [[run] for run in runs]:
        yield as_block(group)


def as_block(runs: list[Run]) -> str:
    lines = [line.rstrip() for run in runs for line in (f"$ {run.typed}", *run.said.rstrip().splitlines())]
    return "```console\n" + "\n".join(lines) + "\n```\n"


def undocumented() -> list[str]:
    """Commands that have no example; a help alone says little."""
    return [name for name in COMMANDS if name not in EXAMPLES and name != "worker"]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        prepared = Path(folder, "shop")
        prepared.mkdir()
        build(prepared)
        text = page(prepared, Path(folder))
    if "--write" in sys.argv:
        PAGE.write_text(text)
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
