from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, cast

import pytest

from export.bundle import Bundle, Precision
from tests.tiny_bundles import make_bundle, make_shortlist

_SHAPE: dict[str, Any] = {
    "spread": 8.0,
    "d_model": 256,
    "num_heads": 8,
    "d_ff": 512,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "output_bias": True,
}


@pytest.fixture(scope="session")
def random_bundle(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Precision], Bundle]:
    """A random model as wide as the embedded ones, exported once; its checkpoint lies beside the bundle."""

    @cache
    def create(precision: Precision) -> Bundle:
        return make_bundle(tmp_path_factory.mktemp(f"random-{precision}"), precision, **_SHAPE)

    return create


@pytest.fixture(scope="session")
def served_bundle(
    random_bundle: Callable[[Precision], Bundle], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Bundle]:
    """Random models in every form that a CPU serves: the precisions, and "int8 caches", for which text was there."""

    @cache
    def create(form: str) -> Bundle:
        if form != "int8 caches":
            return random_bundle(cast("Precision", form))
        directory = tmp_path_factory.mktemp("random-int8-caches")
        bundle = make_bundle(
            directory, "int8", shortlist=make_shortlist(), knows_ranges=True, **_SHAPE
        )
        assert bundle.manifest.int8_caches
        return bundle

    return create


@pytest.fixture(scope="session")
def shortlist_bundle(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[Precision], Bundle]:
    """The same model with a shortlist."""

    @cache
    def create(precision: Precision) -> Bundle:
        directory = tmp_path_factory.mktemp(f"shortlist-{precision}")
        return make_bundle(directory, precision, shortlist=make_shortlist(), **_SHAPE)

    return create
