"""One thread for torch: its models are tiny here, and threads that wait for each other cost more than they help.

Measured on two cores beside another busy process: the tests take 103 s with one thread and 501 s with two.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
