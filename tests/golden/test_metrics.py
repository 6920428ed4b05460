"""The whole list of metrics: names, types and labels, for dashboards and alerts to rely on."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from service.calls import RpcEnded, RpcMethod, RpcStarted
from service.metrics import ModelInfo, ModelLimits, PrometheusObserver
from tests.golden_files import assert_matches_golden


def test_metrics_are_the_golden_ones() -> None:
    registry = CollectorRegistry()
    observer = PrometheusObserver(registry)
    observer.start_model(
        ModelInfo(
            model="m",
            version="1",
            source="en",
            target="pt",
            provider="cpu",
            precision="int8",
            threads=1,
        ),
        ModelLimits(queue=1, rows=1, kv_bytes=1),
    )
    method = RpcMethod("unary", "service", "Method")
    observer.on_rpc_started(RpcStarted(method=method))
    observer.on_rpc_ended(RpcEnded(method=method, code="OK", seconds=0.1))
    lines = set()
    for family in registry.collect():
        if not family.name.startswith(("process_", "python_")):
            suffix = "_total" if family.type == "counter" else ""
            labels = {name for sample in family.samples for name in sample.labels} - {"le"}
            lines.add(f"{family.name}{suffix} {family.type} {','.join(sorted(labels))}\n")
    assert_matches_golden("metrics.txt", "".join(sorted(lines)))
