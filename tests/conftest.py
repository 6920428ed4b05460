"""What must be set before anything is imported.

One thread for torch: its models are tiny here, and threads that wait for each other cost more than they help. Measured
on two cores beside another busy process: the tests take 103 s with one thread and 501 s with two.

No telemetry of ONNX Runtime, as in the program itself.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
