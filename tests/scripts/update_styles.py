"""Loops whose update is not one backward and one optimizer call."""

import argparse
import gc

import torch
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--style", required=True)
args = parser.parse_args()

torch.manual_seed(0)
embedding = torch.nn.Embedding(50, 16)
head = torch.nn.Linear(16, 50)
model = torch.nn.Sequential(embedding, head)
data = torch.randint(0, 50, (240, 8))
loader = DataLoader(data, batch_size=4)


def loss_of(batch):
    loss = torch.nn.functional.cross_entropy(model(batch).flatten(0, 1), batch.flatten())
    print("loss", loss.item().hex())
    return loss


if args.style == "accumulate":
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for i, batch in enumerate(loader):
        (loss_of(batch) / 3).backward()
        if i % 3 == 2:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
elif args.style == "two":
    first = torch.optim.AdamW(embedding.parameters(), lr=1e-2)
    second = torch.optim.SGD(head.parameters(), lr=1e-1)
    for batch in loader:
        loss_of(batch).backward()
        for optimizer in (first, second):
            optimizer.step()
            optimizer.zero_grad()
elif args.style == "closure":
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
    for batch in loader:

        def closure(batch=batch):
            optimizer.zero_grad()
            loss = loss_of(batch)
            loss.backward()
            return loss

        optimizer.step(closure)
elif args.style == "closure-alone":
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)

    def whole():
        optimizer.zero_grad()
        loss = loss_of(data[:8])
        loss.backward()
        return loss

    for _ in range(12):
        optimizer.step(whole)
elif args.style == "by-hand":
    for batch in loader:
        loss_of(batch).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
                parameter.grad = None
elif args.style == "gradients-only":
    for batch in loader:
        loss_of(batch).backward()
        model.zero_grad()
elif args.style == "scaler":
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cpu")
    for batch in loader:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = loss_of(batch)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
elif args.style == "in-backward":
    optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}

    def update(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(update)
    for batch in loader:
        loss_of(batch).backward()
elif args.style == "no-loader":
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for start in range(0, 240, 4):
        loss_of(data[start : start + 4]).backward()
        optimizer.step()
        optimizer.zero_grad()
elif args.style == "evaluates":
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    held_out = DataLoader(data[:40], batch_size=10)

    @torch.no_grad()
    def validate():
        return [loss_of(other).item() for other in held_out]

    for i, batch in enumerate(loader):
        loss_of(batch).backward()
        optimizer.step()
        optimizer.zero_grad()
        if i % 5 == 4:
            model.eval()
            validate()
            model.train()
elif args.style == "switches":
    torch.autograd.set_detect_anomaly(True)
    torch.use_deterministic_algorithms(True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        for batch in loader:
            loss_of(batch).backward()
            optimizer.step()
            optimizer.zero_grad()
            gc.collect()
print("end of the job")
