"""Samples in Prometheus' text format, for what is read from the store when it is asked for. It needs no extra."""

from __future__ import annotations

from collections.abc import Sequence

from accoda.runtime.metrics.families import FAMILIES, LANE_JOBS

PAGE_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_ORDER = {family.name: (place, family) for place, family in enumerate((*FAMILIES, LANE_JOBS))}

Sample = tuple[str, tuple[str, ...], float]


def text_of(samples: Sequence[Sample]) -> bytes:
    """Samples as text, each family with its help and kind.

    >>> print(text_of([("queue_paused", ("emails", ""), 1.0)]).decode(), end="")
    # HELP queue_paused 1 while the queue is paused, else 0.
    # TYPE queue_paused gauge
    queue_paused{queue="emails",queue_num=""} 1.0
    """
    lines: list[str] = []
    said: set[str] = set()
    for name, values, number in sorted(samples, key=lambda sample: _ORDER[_family(sample[0])][0]):
        family = _ORDER[_family(name)][1]
        if family.name not in said:
            said.add(family.name)
            lines += [f"# HELP {family.name} {family.text}", f"# TYPE {family.name} {family.kind}"]
        names = (*family.labels, "le") if name.endswith("_bucket") else family.labels
        labels = ",".join(f'{label}="{_escaped(text)}"' for label, text in zip(names, values, strict=True))
        lines.append(f"{name}{{{labels}}} {float(number)}")
    return "".join(line + "\n" for line in lines).encode()


def _family(sample: str) -> str:
    """The family of a sample; a histogram has samples of several names.

    >>> _family("queue_paused"), _family("accoda_flow_duration_seconds_bucket")
    ('queue_paused', 'accoda_flow_duration_seconds')
    """
    return sample if sample in _ORDER else sample.rpartition("_")[0]


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
