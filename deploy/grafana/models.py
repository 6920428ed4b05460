"""The dashboard of the models: which are served, how fast is each, and how well does it do?"""

from __future__ import annotations

from deploy.grafana.board import MODEL, Board, Panel, Query, Row, mean, quantile, rate

__all__ = ["MODELS"]

_FINISHED = f'{MODEL}, outcome="finished"'
_SOURCE = f'{MODEL}, side="source"'
_TARGET = f'{MODEL}, side="target"'

_LOADED = Row(
    title="Models",
    panels=(
        Panel(
            title="Loaded models",
            description=(
                "Every model with its version, languages, provider, precision and engine threads,"
                " and the servers that have it."
            ),
            unit="none",
            kind="table",
            width=18,
            queries=(
                Query(
                    "count by (model, version, source, target, provider, precision, threads) "
                    f"(dragoman_model_info{{{MODEL}}})",
                    "servers",
                ),
            ),
        ),
        Panel(
            title="Versions of a model",
            description="More than one for long is a rollout that does not end.",
            unit="none",
            kind="stat",
            width=6,
            warn_above=1.5,
            queries=(
                Query(
                    f"count by (model) (count by (model, version) (dragoman_model_info{{{MODEL}}}))",
                    "{{model}}",
                ),
            ),
        ),
    ),
)

_USE = Row(
    title="Use",
    panels=(
        Panel(
            title="Sentences",
            description="Sentences that left, a second, by model.",
            unit="cps",
            queries=(Query(rate("dragoman_sentences_total", MODEL, "model"), "{{model}}"),),
        ),
        Panel(
            title="Target tokens",
            description="Tokens that were answered, a second, by model: the throughput that costs.",
            unit="cps",
            queries=(Query(rate("dragoman_tokens_total", _TARGET, "model"), "{{model}}"),),
        ),
        Panel(
            title="Share of the engine's time",
            description="Which model the engine workers spend their time on.",
            unit="percentunit",
            max=1.0,
            is_stacked=True,
            queries=(
                Query(
                    rate("dragoman_step_seconds_sum", MODEL, "model")
                    + " / on () group_left "
                    + rate("dragoman_step_seconds_sum", MODEL),
                    "{{model}}",
                ),
            ),
        ),
    ),
)

_TEXTS = Row(
    title="Texts",
    panels=(
        Panel(
            title="Source tokens of a sentence",
            description="Mean length of what is translated.",
            unit="none",
            queries=(
                Query(
                    rate("dragoman_tokens_total", _SOURCE, "model")
                    + " / "
                    + rate("dragoman_encode_seconds_count", MODEL, "model"),
                    "{{model}}",
                ),
            ),
        ),
        Panel(
            title="Target tokens of a sentence",
            description="Mean length of the answers.",
            unit="none",
            queries=(
                Query(
                    rate("dragoman_tokens_total", _TARGET, "model")
                    + " / "
                    + rate("dragoman_sentences_total", _FINISHED, "model"),
                    "{{model}}",
                ),
            ),
        ),
        Panel(
            title="Target tokens for a source token",
            description=(
                "Steady for a pair of languages. A rise is text that makes the model repeat "
                "itself, a fall text that it drops."
            ),
            unit="none",
            queries=(
                Query(
                    rate("dragoman_tokens_total", _TARGET, "model")
                    + " / "
                    + rate("dragoman_tokens_total", _SOURCE, "model"),
                    "{{model}}",
                ),
            ),
        ),
    ),
)

_SPEED = Row(
    title="Speed",
    panels=(
        Panel(
            title="Time of a sentence",
            description="Median and 99th percentile, from its arrival at the engine to its answer.",
            unit="s",
            queries=(
                Query(quantile(0.5, "dragoman_sentence_seconds", MODEL, "model"), "{{model}} p50"),
                Query(quantile(0.99, "dragoman_sentence_seconds", MODEL, "model"), "{{model}} p99"),
            ),
        ),
        Panel(
            title="Time in the queue",
            description="Mean and 99th percentile of the wait before the encoder.",
            unit="s",
            queries=(
                Query(mean("dragoman_queue_seconds", MODEL, "model"), "{{model}} mean"),
                Query(quantile(0.99, "dragoman_queue_seconds", MODEL, "model"), "{{model}} p99"),
            ),
        ),
        Panel(
            title="Time in the encoder",
            description="Mean time of the encoder for the batch that a sentence joined with.",
            unit="s",
            queries=(Query(mean("dragoman_encode_seconds", MODEL, "model"), "{{model}}"),),
        ),
        Panel(
            title="Decoder time for a token",
            description=(
                "Decoder time of the sentences over their target tokens: what one more token "
                "costs the caller."
            ),
            unit="s",
            queries=(
                Query(
                    rate("dragoman_decode_seconds_sum", MODEL, "model")
                    + " / "
                    + rate("dragoman_tokens_total", _TARGET, "model"),
                    "{{model}}",
                ),
            ),
        ),
        Panel(
            title="Time of a step",
            description="Mean time and 99th percentile of one decoder step of all rows.",
            unit="s",
            queries=(
                Query(mean("dragoman_step_seconds", MODEL, "model"), "{{model}} mean"),
                Query(quantile(0.99, "dragoman_step_seconds", MODEL, "model"), "{{model}} p99"),
            ),
        ),
        Panel(
            title="Target tokens a busy second",
            description=(
                "Tokens answered for each second that a worker was in a step: the efficiency of "
                "batching."
            ),
            unit="cps",
            queries=(
                Query(
                    rate("dragoman_tokens_total", _TARGET, "model")
                    + " / "
                    + rate("dragoman_step_seconds_sum", MODEL, "model"),
                    "{{model}}",
                ),
            ),
        ),
    ),
)

_QUALITY = Row(
    title="Answers and memory",
    panels=(
        Panel(
            title="Sentences without an answer",
            description="Share that was cancelled, expired or failed.",
            unit="percentunit",
            queries=(
                Query(
                    rate(
                        "dragoman_sentences_total",
                        f'{MODEL}, outcome!="finished"',
                        "model",
                        "outcome",
                    )
                    + " / on (model) group_left "
                    + rate("dragoman_sentences_total", MODEL, "model"),
                    "{{model}} {{outcome}}",
                ),
            ),
        ),
        Panel(
            title="Guards",
            description=(
                "Answers that a guard acted on, of the finished sentences: cut by a limit, "
                "repetition, copied source, placeholder."
            ),
            unit="percentunit",
            queries=(
                Query(
                    rate("dragoman_guard_total", MODEL, "model", "guard")
                    + " / on (model) group_left "
                    + rate("dragoman_sentences_total", _FINISHED, "model"),
                    "{{model}} {{guard}}",
                ),
            ),
        ),
        Panel(
            title="Caches",
            description="Bytes of live rows, and memory held, by model.",
            unit="bytes",
            queries=(
                Query(f"sum by (model) (dragoman_kv_cache_bytes{{{MODEL}}})", "{{model}} live"),
                Query(f"sum by (model) (dragoman_kv_reserved_bytes{{{MODEL}}})", "{{model}} held"),
            ),
        ),
    ),
)

MODELS = Board(
    uid="dragoman-models",
    title="Dragoman: models",
    description=(
        "Which models are served, how they are used, how fast they are and what becomes of their "
        "sentences."
    ),
    rows=(_LOADED, _USE, _TEXTS, _SPEED, _QUALITY),
)
