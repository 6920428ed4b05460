"""Stage 6 of 10: arrays bound to the inputs and outputs of one graph, from step to step.

While the shape of an input does not change, a step writes it into the array that is bound already; and nothing is
written when the very array is given that was given before.
"""

from __future__ import annotations

from typing import TypeVar, cast

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

__all__ = ["GraphBinding"]

AnyArray = NDArray[np.generic]
ScalarT = TypeVar("ScalarT", bound=np.generic)


class GraphBinding:
    """The arrays of one session that one thread uses."""

    def __init__(self, session: ort.InferenceSession) -> None:
        self._session = session
        self._binding = session.io_binding()
        self._own: dict[str, AnyArray] = {}
        self._fed: dict[str, AnyArray] = {}

    def run(self) -> None:
        """Run the graph on what is bound."""
        self._session.run_with_iobinding(self._binding)

    def feed(self, name: str, array: AnyArray) -> None:
        """Give the graph an input, which is copied. An array that is given twice must not have changed between."""
        if self._fed.get(name) is array:
            return
        self._fed[name] = array
        own = self._own.get(name)
        if own is not None and own.shape == array.shape:
            own[...] = array
            return
        self._own[name] = array = array.copy()
        self.bind_input(name, array)

    def collect(self, name: str, shape: tuple[int, ...], dtype: type[ScalarT]) -> NDArray[ScalarT]:
        """Say where the graph will write an output."""
        own = self._own.get(name)
        if own is None or own.shape != shape:
            self._own[name] = own = np.empty(shape, dtype)
            self.bind_output(name, own)
        return cast("NDArray[ScalarT]", own)

    def bind_input(self, name: str, array: AnyArray) -> None:
        """Let the graph read an array, contiguous and kept alive by the caller, as it stands when the graph runs."""
        self._binding.bind_input(name, "cpu", 0, array.dtype.type, array.shape, _address(array))

    def bind_output(self, name: str, array: AnyArray) -> None:
        """Let the graph write into an array, contiguous and kept alive by the caller."""
        self._binding.bind_output(name, "cpu", 0, array.dtype.type, array.shape, _address(array))


def _address(array: AnyArray) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
