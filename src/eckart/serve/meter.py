"""Counts and times of a worker, in the words of Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from itertools import accumulate
from typing import Any

EDGES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper edges of the histogram of seconds."""


class Meter:
    """Counts and times for Prometheus, of this process."""

    def __init__(self) -> None:
        self.requests: dict[tuple[str, str, int], int] = defaultdict(int)
        self.times: dict[str, list[int]] = defaultdict(lambda: [0] * (len(EDGES) + 1))
        self.total: dict[str, float] = defaultdict(float)
        self.busy = 0

    def took(self, model: str, verb: str, status: int, seconds: float) -> None:
        self.requests[model, verb, status] += 1
        self.times[verb][bisect_left(EDGES, seconds)] += 1
        self.total[verb] += seconds

    def text(self, registry: Any) -> str:
        lines = ["# TYPE eckart_requests_total counter"]
        lines += [
            f'eckart_requests_total{{model="{m}",verb="{v}",status="{s}"}} {c}'
            for (m, v, s), c in sorted(self.requests.items())
        ]
        lines.append("# TYPE eckart_request_seconds histogram")
        for verb, counts in sorted(self.times.items()):
            below = list(accumulate(counts))
            lines += [
                f'eckart_request_seconds_bucket{{verb="{verb}",le="{edge}"}} {c}'
                for edge, c in zip([*EDGES, "+Inf"], below)
            ]
            lines += [
                f'eckart_request_seconds_sum{{verb="{verb}"}} {self.total[verb]:.6f}',
                f'eckart_request_seconds_count{{verb="{verb}"}} {below[-1]}',
            ]
        rest = (
            ("requests_busy", "gauge", self.busy),
            ("model_swaps_total", "counter", registry.swaps),
            ("models_refused", "gauge", len(registry.refused)),
        )
        for name, kind, value in rest:
            lines += [f"# TYPE eckart_{name} {kind}", f"eckart_{name} {value}"]
        return "\n".join(lines) + "\n"
