"""Start-up: the encoder and decoder graphs of a bundle, compared with what its manifest says."""

from __future__ import annotations

from dataclasses import dataclass

import onnxruntime as ort

from export import signature
from export.bundle import Bundle, BundleError
from service.engine.base import EngineFacts
from service.engine.decoder_state import CacheShape
from service.engine.sessions import create_session, session_faults

__all__ = ["ModelGraphs", "load_graphs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelGraphs:
    """Sessions of one bundle, and what the engine must know beside them."""

    encoder: ort.InferenceSession
    decoder: ort.InferenceSession
    facts: EngineFacts
    shape: CacheShape
    pad_id: int


def load_graphs(bundle: Bundle, provider: str) -> ModelGraphs:
    """Create the sessions of a bundle.

    Raises:
        ConfigError: As `create_session`.
        BundleError: A graph has not the inputs and outputs that go with the manifest.
    """
    manifest = bundle.manifest
    architecture, special = manifest.architecture, manifest.special_tokens
    cache = (architecture.num_decoder_layers, architecture.num_heads, architecture.head_size)
    precision, int8_caches = manifest.precision, manifest.int8_caches
    encoder = create_session(bundle.encoder_path, provider)
    decoder = create_session(bundle.decoder_path, provider)
    faults = [
        *session_faults(
            encoder,
            bundle.encoder_path.name,
            signature.encoder_inputs(),
            signature.encoder_outputs(*cache, precision),
        ),
        *session_faults(
            decoder,
            bundle.decoder_path.name,
            signature.decoder_inputs(*cache, precision, int8_caches=int8_caches),
            signature.decoder_outputs(
                *cache, architecture.vocab_size, precision, int8_caches=int8_caches
            ),
        ),
    ]
    if faults:
        raise BundleError(str(bundle.directory), faults)
    return ModelGraphs(
        encoder=encoder,
        decoder=decoder,
        facts=EngineFacts(vocab_size=architecture.vocab_size, eos_id=special.eos_id),
        shape=CacheShape(
            num_layers=architecture.num_decoder_layers,
            num_heads=architecture.num_heads,
            head_size=architecture.head_size,
            start_id=special.pad_id if special.bos_id is None else special.bos_id,
            int8_caches=int8_caches,
        ),
        pad_id=special.pad_id,
    )
