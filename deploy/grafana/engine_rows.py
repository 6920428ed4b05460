"""Rows of the operators' dashboard about what the servers hold: queue, processor, batches, caches, guards."""

from __future__ import annotations

from deploy.grafana.board import MODEL, SERVER, Panel, Query, Row, mean, quantile, rate

__all__ = ["BATCHES", "CACHE_AND_GUARDS", "SATURATION"]

SATURATION = Row(
    title="Queue and saturation",
    panels=(
        Panel(
            title="Queue",
            description="Sentences that wait, by model. Beyond the limit calls are refused.",
            unit="none",
            queries=(Query(f"sum by (model) (dragoman_queue_depth{{{MODEL}}})", "{{model}}"),),
        ),
        Panel(
            title="Time in the queue",
            description="Quantiles of the time that a sentence waited for the engine.",
            unit="s",
            warn_above=0.5,
            queries=tuple(
                Query(quantile(q, "dragoman_queue_seconds", MODEL), f"p{100 * q:g}")
                for q in (0.5, 0.9, 0.99)
            ),
        ),
        Panel(
            title="Share of what may be held",
            description=(
                "Queue, decoder rows and reserved caches, of their limits, over all servers that "
                "are chosen."
            ),
            unit="percentunit",
            max=1.0,
            queries=(
                Query(
                    f"sum(dragoman_queue_depth{{{MODEL}}}) / sum(dragoman_queue_limit{{{MODEL}}})",
                    "queue",
                ),
                Query(
                    f"sum(dragoman_running_rows{{{MODEL}}}) / sum(dragoman_row_limit{{{MODEL}}})",
                    "rows",
                ),
                Query(
                    f"sum(dragoman_kv_reserved_bytes{{{MODEL}}}) / sum(dragoman_kv_limit_bytes{{{MODEL}}})",
                    "caches",
                ),
            ),
        ),
        Panel(
            title="Processor",
            description="Cores that each server keeps busy.",
            unit="cores",
            queries=(Query(rate("process_cpu_seconds_total", SERVER, "instance"), "{{instance}}"),),
        ),
        Panel(
            title="Memory",
            description="Resident memory of each server.",
            unit="bytes",
            queries=(
                Query(
                    f"sum by (instance) (process_resident_memory_bytes{{{SERVER}}})", "{{instance}}"
                ),
            ),
        ),
        Panel(
            title="File descriptors",
            description=(
                "Open file descriptors of those that each server may open; every connection needs"
                " one."
            ),
            unit="percentunit",
            warn_above=0.8,
            queries=(
                Query(
                    f"sum by (instance) (process_open_fds{{{SERVER}}}) "
                    f"/ sum by (instance) (process_max_fds{{{SERVER}}})",
                    "{{instance}}",
                ),
            ),
        ),
    ),
)

BATCHES = Row(
    title="Batches",
    panels=(
        Panel(
            title="Batch occupancy",
            description=(
                "Decoder rows (hypotheses) in a step. More rows a step is more throughput, and "
                "longer steps."
            ),
            unit="none",
            width=6,
            queries=(
                Query(mean("dragoman_step_rows", MODEL), "mean"),
                Query(quantile(0.9, "dragoman_step_rows", MODEL), "p90"),
            ),
        ),
        Panel(
            title="Time of a step",
            description=(
                "One token for every running row: admission, encoder of those that join, decoder,"
                " search, moving rows."
            ),
            unit="s",
            width=6,
            queries=(
                Query(quantile(0.5, "dragoman_step_seconds", MODEL), "p50"),
                Query(quantile(0.99, "dragoman_step_seconds", MODEL), "p99"),
            ),
        ),
        Panel(
            title="Busy engine workers",
            description=(
                "Workers that are in a step, on average. At the number of workers the engine is "
                "saturated."
            ),
            unit="none",
            width=6,
            queries=(Query(rate("dragoman_step_seconds_sum", MODEL, "model"), "{{model}}"),),
        ),
        Panel(
            title="Padding waste",
            description=(
                "Encoder: share of the computed positions that hold no token. Decoder: by how "
                "much the longest source of a step, which all its rows pay for, exceeds the mean "
                "source."
            ),
            unit="percentunit",
            max=1.0,
            width=6,
            queries=(
                Query(
                    "clamp_min(1 - "
                    + rate("dragoman_tokens_total", f'{MODEL}, side="source"')
                    + " / "
                    + rate("dragoman_padded_tokens_total", f'{MODEL}, graph="encoder"')
                    + ", 0)",
                    "encoder",
                ),
                Query(
                    "clamp_min(1 - ("
                    + rate("dragoman_tokens_total", f'{MODEL}, side="source"')
                    + " / "
                    + rate("dragoman_encode_seconds_count", MODEL)
                    + ") / ("
                    + rate("dragoman_padded_tokens_total", f'{MODEL}, graph="decoder"')
                    + " / "
                    + rate("dragoman_step_rows_sum", MODEL)
                    + "), 0)",
                    "decoder",
                ),
            ),
        ),
    ),
)

CACHE_AND_GUARDS = Row(
    title="Cache and guards",
    panels=(
        Panel(
            title="Caches",
            description=(
                "Keys and values of running sentences: bytes of live rows, memory held, and the "
                "limit of what may be reserved."
            ),
            unit="bytes",
            queries=(
                Query(f"sum(dragoman_kv_cache_bytes{{{MODEL}}})", "live"),
                Query(f"sum(dragoman_kv_reserved_bytes{{{MODEL}}})", "held"),
                Query(f"sum(dragoman_kv_limit_bytes{{{MODEL}}})", "limit"),
            ),
        ),
        Panel(
            title="Guards",
            description=(
                "Answers that a guard acted on, a second: cut by a limit, repetition, copied "
                "source, placeholder."
            ),
            unit="cps",
            is_stacked=True,
            queries=(Query(rate("dragoman_guard_total", MODEL, "guard"), "{{guard}}"),),
        ),
        Panel(
            title="Cut answers",
            description=(
                "Share of the finished sentences that a limit cut. Callers see `truncated` on them."
            ),
            unit="percentunit",
            warn_above=0.05,
            queries=(
                Query(
                    rate("dragoman_guard_total", f'{MODEL}, guard="truncated"', "model")
                    + " / "
                    + rate("dragoman_sentences_total", f'{MODEL}, outcome="finished"', "model"),
                    "{{model}}",
                ),
            ),
        ),
    ),
)
