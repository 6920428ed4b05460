"""What must be set before anything is imported.

One thread for torch: its models are tiny here, and threads that wait for each other cost more than they help. Measured
on two cores beside another busy process: the tests take 103 s with one thread and 501 s with two.

No telemetry of ONNX Runtime, as in the program itself.

gRPC tells errors only: clients that outlive their server would otherwise write GOAWAY between the dots.

No deadline for a property's example: a busy machine is no fault. Where CI is set, properties try the same examples
every time, so that a change is judged by itself; elsewhere new ones are tried.
"""

import os

from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

settings.register_profile("dragoman", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("dragoman")
