"""Switches that help debugging and cost speed."""

from __future__ import annotations

from autotune.facts.fact import Fact

FACTS = (
    Fact("debug.anomaly_detection", "bool", "", "torch.autograd anomaly detection is on", "probe"),
    Fact("debug.launch_blocking", "bool", "", "CUDA_LAUNCH_BLOCKING is set", "probe"),
    Fact("debug.deterministic", "bool", "", "Deterministic algorithms are forced", "probe"),
    Fact("debug.debugger", "bool", "", "A trace function or debugger is attached", "probe"),
    Fact("debug.profiler_left_on", "bool", "", "The job itself runs a profiler during every step", "probe"),
    Fact("debug.flags_on", "list", "", "Names of the debugging switches found on", "derived"),
    Fact(
        "debug.torch_logs", "bool", "", "TORCH_LOGS, NCCL_DEBUG=INFO or a similar verbose log is on", "probe"
    ),
    Fact(
        "debug.distributed_debug",
        "bool",
        "",
        "TORCH_DISTRIBUTED_DEBUG=DETAIL adds checks to every collective",
        "probe",
    ),
    Fact("debug.compile_disabled", "bool", "", "An environment variable switches torch.compile off", "probe"),
    Fact("debug.triton_interpreted", "bool", "", "Triton kernels run in the interpreter", "probe"),
    Fact("debug.blocking_wait", "bool", "", "The CPU waits for every NCCL collective", "probe"),
    Fact("debug.python_dev_mode", "bool", "", "Python's development mode is on", "probe"),
    Fact("debug.cudnn_benchmark", "bool", "", "cuDNN tries its algorithms for every new shape", "probe"),
)
