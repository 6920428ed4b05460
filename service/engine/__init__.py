"""Stages 5 and 6 of 10: what runs the graphs.

ONNX Runtime reports its use to its maker unless this variable is set before it is imported. Who runs a translation
service for themselves does not expect that; `ORT_DISABLE_TELEMETRY=0` allows it.
"""

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
