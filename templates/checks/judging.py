"""Hold ways to compute one thing against plain float32 arithmetic: output and every gradient."""

import importlib

import torch

FACTOR = 1.5
LENGTHS = (70, 1, 33, 128, 24)


def in_short(fault):
    return f"{type(fault).__name__}: {(str(fault).splitlines() or [''])[0]}"[:300]


def found(place, name):
    """(function, reason): one of the two is empty."""
    try:
        return getattr(importlib.import_module(place), name), ""
    except ModuleNotFoundError as fault:
        missing = not fault.name or place.split(".")[0] == fault.name.split(".")[0]
        return None, "not installed" if missing else in_short(fault)
    except Exception as fault:
        return None, in_short(fault)


def judge(path, roads, inputs, dtype, reference, plain):
    """One answer for each road (name -> (function, why not)): all run on the same numbers."""
    torch.manual_seed(1)
    if any(run is not None for run, _ in roads.values()):
        exact = values(reference, [x.float() for x in inputs])
        usual = values(plain, [x.to(dtype) for x in inputs])
    answers = []
    for by, (run, reason) in roads.items():
        if run is None:
            state = (
                "absent"
                if reason == "not installed"
                else "not here"
                if reason.startswith("needs")
                else "failed"
            )
            answers.append({"path": path, "by": by, "state": state, "detail": reason})
            continue
        try:
            made = values(run, [x.to(dtype) for x in inputs])
            if inputs[0].is_cuda:
                torch.cuda.synchronize()
        except Exception as fault:
            answers.append({"path": path, "by": by, "state": "failed", "detail": in_short(fault)})
            continue
        worst, where = 0.0, ""
        for name, one, two, three in zip(
            ("output", *(f"gradient {i}" for i in range(len(inputs)))), made, exact, usual, strict=True
        ):
            if not torch.isfinite(one).all():
                worst, where = float("inf"), name
                break
            size = two.norm().clamp(min=1e-12)
            # nobody is expected to be closer than the dtype's own rounding
            allowed = torch.maximum((three - two).norm() / size, torch.tensor(torch.finfo(dtype).eps / 4))
            ratio = float((one - two).norm() / size / allowed)
            worst, where = max((worst, where), (ratio, name))
        state = "live" if worst <= FACTOR else "wrong"
        detail = f"error {worst:.2f} times that of plain torch at most ({where}), forward and backward"
        answers.append({"path": path, "by": by, "state": state, "detail": detail})
    return answers


def values(run, inputs):
    """The output and the gradient of every input, in float32."""
    inputs = [x.detach().clone().requires_grad_() for x in inputs]
    out = run(*inputs)
    torch.manual_seed(2)
    weight = torch.randn(out.shape, dtype=torch.float32).to(out.device)
    gradients = torch.autograd.grad((out.float() * weight).sum(), inputs, allow_unused=True)
    zero = [torch.zeros_like(x) if g is None else g for g, x in zip(gradients, inputs, strict=True)]
    return [out.detach().float(), *(g.float() for g in zero)]


def boundaries(device):
    return torch.tensor([0, *torch.tensor(LENGTHS).cumsum(0).tolist()], dtype=torch.int32, device=device)
