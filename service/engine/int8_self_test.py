"""Start-up: whether this processor multiplies 8-bit integers exactly.

Kernels for u8 x s8 on x86 without VNNI add pairs of products in 16 bits and saturate. The session option that avoids it
is set where it is needed; this test looks at what comes out, with the largest products there are.
"""

from __future__ import annotations

import base64
import zlib

import numpy as np
import onnxruntime as ort

from service.engine.sessions import create_session
from service.errors import ConfigError

__all__ = ["check_int8_products"]

_GRAPH = (
    "eNrj4LKazcllzsVYwcVYzsVYDEZVQoyVSiK+iSW+pTmeeSWp6alFIfluOfmJJVa8yfm5ermZyUX5xflpJUJ8mXklFvHFqTlp8SWpxSVa"
    "PRwcDhwCAsxOjOVeDRz1jaNwFI7CkQq1uAUYnRiLvVgYGBrstTgEmJwYq7wYG6JEgMWNED8XLweTECcXsxCjLxcTh0MSULQSLMqIEBVw"
    "YuFiEBB1EuRCLXgEGAETKCh/"
)
"""y = MatMulIntegerToFloat(x, weights, scales 1, zero points 128 and 0), weights (64, 16) of 127 and -127 in turn.

The test of this module writes it again with the `onnx` library and compares.
"""

_NUM_ROWS = 3
_INNER_SIZE = 64
_NUM_COLUMNS = 16
_LARGEST = 127
_ZERO_POINT = 128


def check_int8_products(provider: str) -> None:
    """Compare int8 products with exact integers.

    Raises:
        ConfigError: They differ; int8 models would give wrong translations on this machine.
    """
    session = create_session(zlib.decompress(base64.b64decode(_GRAPH)), provider)
    source = np.zeros((_NUM_ROWS, _INNER_SIZE), np.uint8)
    source[0] = np.iinfo(np.uint8).max
    source[1, ::2] = np.iinfo(np.uint8).max
    (found,) = session.run(None, {"x": source})
    if not np.array_equal(found, _exact(source)):
        raise ConfigError(
            f"int8 products are not exact on this machine ({ort.get_device()}, {provider}): "
            "serve a float32 bundle here."
        )


def _exact(source: np.typing.NDArray[np.uint8]) -> np.typing.NDArray[np.int64]:
    weights = np.full((_INNER_SIZE, _NUM_COLUMNS), _LARGEST, np.int64)
    weights[:, 1::2] = -_LARGEST
    product: np.typing.NDArray[np.int64] = (source.astype(np.int64) - _ZERO_POINT) @ weights
    return product
