"""Start-up: the engine that goes with a provider, and which precision it takes."""

from __future__ import annotations

import logging

from export.bundle import Bundle
from service.engine.device_engine import DeviceEngine, load_device_engine
from service.engine.device_memory import Device
from service.engine.onnx_engine import OnnxEngine, load_onnx_engine
from service.errors import ConfigError

__all__ = ["check_precision", "load_engine"]

logger = logging.getLogger(__name__)

_PRECISIONS = {"cpu": ("int8", "float32"), "cuda": ("float16",)}
"""ONNX Runtime multiplies int8 rows by int8 columns on CPUs only, and attends to float32 caches there only."""


def check_precision(bundle: Bundle, provider: str) -> None:
    """Refuse a bundle that this provider cannot run.

    Raises:
        ConfigError: It was exported for another one.
    """
    precision, known = bundle.manifest.precision, _PRECISIONS[provider]
    if precision not in known:
        raise ConfigError(
            f"{bundle.directory}: `provider` {provider!r} takes {' or '.join(known)}, but this bundle is "
            f"{precision}: export its checkpoint again with `dragoman export --precision {known[0]}`."
        )


def load_engine(
    bundle: Bundle,
    *,
    provider: str = "cpu",
    max_encode_tokens: int = 512,
    use_shortlist: bool = True,
) -> OnnxEngine | DeviceEngine:
    """Create the sessions of a bundle.

    Args:
        bundle: A verified bundle.
        provider: "cpu" or "cuda".
        max_encode_tokens: Padded source tokens of one run of the encoder, at most; on a CPU 256 are enough.
        use_shortlist: Whether to use the shortlist of a bundle that has one, on a CPU.

    Raises:
        ConfigError: As `create_session` and `check_precision`.
        BundleError: A graph has not the inputs and outputs that go with the manifest, or the shortlist is none.
    """
    check_precision(bundle, provider)
    if provider == "cpu":
        return load_onnx_engine(
            bundle, max_encode_tokens=max_encode_tokens, use_shortlist=use_shortlist
        )
    if bundle.shortlist_path is not None and use_shortlist:
        logger.info("%s: shortlists are for CPUs: all words are looked at here", bundle.directory)
    return load_device_engine(
        bundle, provider=provider, device=Device(provider), max_encode_tokens=max_encode_tokens
    )
