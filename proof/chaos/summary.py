"""`python -m proof.chaos.summary`: the kept results as one table, written to chaos/results/summary.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from proof.chaos.report import HEADLINES

RESULTS = Path(__file__).parent / "results"
HEAD = (
    *("storage", "jobs", "flows", "joins", "of lanes", "worker kills", "server kills", "other faults"),
    *("lost", "double leases", "stale accepted", "by another's lease", "unexplained duplicates", "lanes broken"),
    *(
        "flows broken",
        "other rules broken",
        "dead that never failed",
        "hand restarts",
        "redelivery, p99",
        "consuming again",
    ),
)


def row(found: dict[str, Any]) -> tuple[str, ...]:
    """One storage. Redelivery is a share of the lease; consuming again is the median and the worst, in seconds."""
    promises, recovery = found["promises"], found["recovery"]
    return (
        found["storage"],
        f"{found['jobs']:,}",
        f"{found.get('flows', 0):,}",  # of an older run there were none
        f"{found.get('joins', 0):,}",
        f"{found.get('in_lanes', 0):,}",
        str(found["worker_kills"]),
        str(found["server_kills"]),
        str(sum(found["other_faults"].values())),
        *(str(promises.get(name, 0)) for name in (*HEADLINES, "other rules broken", "dead that never failed")),
        str(found["hand_restarts"]),
        f"{found['redelivery']['p99']:.0%}",
        f"{recovery['median']:.2f} / {recovery['worst']:.2f} s",
    )


def table(results: list[dict[str, Any]]) -> str:
    """All of them as Markdown."""
    lines = [HEAD, tuple("---" for _ in HEAD), *map(row, results)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main() -> None:
    results = [json.loads(file.read_text()) for file in sorted(RESULTS.glob("*.json"))]
    text = table(results)
    (RESULTS / "summary.md").write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main()
