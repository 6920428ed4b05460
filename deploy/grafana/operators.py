"""The operators' dashboard: is the service well, and if not, where does it hurt?"""

from __future__ import annotations

from deploy.grafana.board import (
    CALLS,
    JOB,
    MODEL,
    SERVER,
    Board,
    Panel,
    Query,
    Row,
    mean,
    quantile,
    rate,
)
from deploy.grafana.engine_rows import BATCHES, CACHE_AND_GUARDS, SATURATION

__all__ = ["OPERATORS"]

_TRANSLATE = f'{CALLS}, grpc_method="TranslateText"'

_GLANCE = Row(
    title="At a glance",
    panels=(
        Panel(
            title="Servers",
            description="Servers that answer their scrapes.",
            unit="none",
            kind="stat",
            width=4,
            height=4,
            queries=(Query(f"sum(up{{{SERVER}}})", "servers"),),
        ),
        Panel(
            title="Calls",
            description="Calls that ended, a second.",
            unit="reqps",
            kind="stat",
            width=4,
            height=4,
            queries=(Query(rate("grpc_server_handled_total", CALLS), "calls"),),
        ),
        Panel(
            title="Failed calls",
            description=(
                "Share of the calls of five minutes that ended with a fault of the server, or "
                "were refused for want of room or time. The objective allows 0.1 %."
            ),
            unit="percentunit",
            kind="stat",
            width=4,
            height=4,
            warn_above=0.001,
            queries=(Query(f"max(job:dragoman_call_errors:ratio_rate5m{{{JOB}}})", "failed"),),
        ),
        Panel(
            title="Call, 99th percentile",
            description=(
                "99 % of the calls of TranslateText took at most this long. The objective is 1 s."
            ),
            unit="s",
            kind="stat",
            width=4,
            height=4,
            warn_above=1.0,
            queries=(Query(f"max(job:dragoman_call_seconds:p99_rate5m{{{JOB}}})", "p99"),),
        ),
        Panel(
            title="Wait, 99th percentile",
            description=(
                "99 % of the sentences waited at most this long for the engine. The objective is "
                "0.5 s."
            ),
            unit="s",
            kind="stat",
            width=4,
            height=4,
            warn_above=0.5,
            queries=(Query(f"max(job_model:dragoman_queue_seconds:p99_rate5m{{{JOB}}})", "p99"),),
        ),
        Panel(
            title="Rows in use",
            description=(
                "Decoder rows that run, of those that may run on all servers. At 100 % sentences "
                "wait."
            ),
            unit="percentunit",
            kind="stat",
            width=4,
            height=4,
            warn_above=0.9,
            queries=(
                Query(
                    f"sum(dragoman_running_rows{{{MODEL}}}) / sum(dragoman_row_limit{{{MODEL}}})",
                    "in use",
                ),
            ),
        ),
    ),
)

_TRAFFIC = Row(
    title="Traffic",
    panels=(
        Panel(
            title="Calls by method",
            description=(
                "Calls that began, a second. A stream counts once, however many texts it carries."
            ),
            unit="reqps",
            queries=(
                Query(rate("grpc_server_started_total", CALLS, "grpc_method"), "{{grpc_method}}"),
            ),
        ),
        Panel(
            title="Sentences by outcome",
            description=(
                "Sentences that left the engine, a second: finished, cancelled by their caller, "
                "expired at their deadline, failed."
            ),
            unit="cps",
            is_stacked=True,
            queries=(Query(rate("dragoman_sentences_total", MODEL, "outcome"), "{{outcome}}"),),
        ),
        Panel(
            title="Tokens",
            description=(
                "Tokens of sentences, a second, without padding: what the service really does."
            ),
            unit="cps",
            queries=(Query(rate("dragoman_tokens_total", MODEL, "side"), "{{side}}"),),
        ),
    ),
)

_ERRORS = Row(
    title="Errors",
    panels=(
        Panel(
            title="Calls that did not end OK",
            description=(
                "A second, by gRPC code. INVALID_ARGUMENT, NOT_FOUND and CANCELLED are the "
                "callers' doing."
            ),
            unit="reqps",
            is_stacked=True,
            width=6,
            queries=(
                Query(
                    rate("grpc_server_handled_total", f'{CALLS}, grpc_code!="OK"', "grpc_code")
                    + " > 0 or "
                    + rate(
                        "grpc_server_handled_total", f'{CALLS}, grpc_code="INTERNAL"', "grpc_code"
                    ),
                    "{{grpc_code}}",
                ),
            ),
        ),
        Panel(
            title="Requests refused",
            description="Calls, and texts of calls, that were refused, a second, by reason.",
            unit="reqps",
            is_stacked=True,
            width=6,
            queries=(Query(rate("dragoman_rejected_total", SERVER, "reason"), "{{reason}}"),),
        ),
        Panel(
            title="Share of bad calls and waits",
            description=(
                "Of five minutes, against each objective: calls that failed (allowed: 0.1 %), "
                "calls over 1 s (1 %), sentences that waited over 0.5 s (1 %)."
            ),
            unit="percentunit",
            width=6,
            queries=(
                Query(f"max(job:dragoman_call_errors:ratio_rate5m{{{JOB}}})", "failed"),
                Query(f"max(job:dragoman_slow_calls:ratio_rate5m{{{JOB}}})", "slow"),
                Query(f"max(job:dragoman_long_waits:ratio_rate5m{{{JOB}}})", "waited"),
            ),
        ),
        Panel(
            title="Burn rate of an hour",
            description=(
                "How many times faster than allowed the budget of each objective is used up. 1 "
                "uses up a month's budget in a month; 14.4 is a page."
            ),
            unit="none",
            width=6,
            warn_above=14.4,
            queries=(
                Query(
                    f"max(job:dragoman_call_errors:ratio_rate1h{{{JOB}}}) / 0.001", "availability"
                ),
                Query(f"max(job:dragoman_slow_calls:ratio_rate1h{{{JOB}}}) / 0.01", "latency"),
                Query(f"max(job:dragoman_long_waits:ratio_rate1h{{{JOB}}}) / 0.01", "queue"),
            ),
        ),
    ),
)

_LATENCY = Row(
    title="Latency",
    panels=(
        Panel(
            title="Time of a call",
            description=(
                "Quantiles of TranslateText, from the first byte to the status. Interpolated "
                "between buckets."
            ),
            unit="s",
            width=6,
            warn_above=1.0,
            queries=tuple(
                Query(quantile(q, "grpc_server_handling_seconds", _TRANSLATE), f"p{100 * q:g}")
                for q in (0.5, 0.9, 0.99)
            ),
        ),
        Panel(
            title="Where the time of a sentence goes",
            description="Mean seconds of a sentence: waiting, encoder, decoder.",
            unit="s",
            is_stacked=True,
            width=6,
            queries=(
                Query(mean("dragoman_queue_seconds", MODEL), "queue"),
                Query(mean("dragoman_encode_seconds", MODEL), "encode"),
                Query(mean("dragoman_decode_seconds", MODEL), "decode"),
            ),
        ),
        Panel(
            title="Work on texts",
            description=(
                "Mean seconds of a request: before the engine (segment, tokenize) and after it "
                "(detokenize, reassemble)."
            ),
            unit="s",
            width=6,
            queries=(Query(mean("dragoman_text_seconds", MODEL, "stage"), "{{stage}}"),),
        ),
        Panel(
            title="Calls by duration",
            description="How many calls of TranslateText took how long: dark is many.",
            unit="s",
            kind="heatmap",
            width=6,
            queries=(
                Query(
                    f"sum by (le) (increase(grpc_server_handling_seconds_bucket{{{_TRANSLATE}}}[$__rate_interval]))",
                    "{{le}}",
                ),
            ),
        ),
    ),
)

OPERATORS = Board(
    uid="dragoman-operators",
    title="Dragoman: operators",
    description="Traffic, errors, latency, saturation, batches, caches and guards of all servers.",
    rows=(_GLANCE, _TRAFFIC, _ERRORS, _LATENCY, SATURATION, BATCHES, CACHE_AND_GUARDS),
)
