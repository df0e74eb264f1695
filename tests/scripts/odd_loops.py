"""Training jobs as people really write them: odd cadences, odd loaders, odd surroundings."""

import asyncio
import os
import subprocess
import sys
import tempfile
import threading

import torch
from torch.utils.data import DataLoader, IterableDataset

DATA = torch.randint(1, 50, (64, 8), generator=torch.Generator().manual_seed(1))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.body = torch.nn.Embedding(50, 16), torch.nn.Linear(16, 16)
        self.head = torch.nn.Linear(16, 50)

    def forward(self, input_ids):
        return self.head(torch.tanh(self.body(self.emb(input_ids))))


def loss_of(model, ids, show=True):
    loss = torch.nn.functional.cross_entropy(model(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    if show:
        print("loss", loss.item().hex(), flush=True)
    return loss


def made():
    torch.manual_seed(0)
    model = Net()
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def plain(loader=None, epochs=3):
    model, optimizer = made()
    for _ in range(epochs):
        for batch in loader if loader is not None else DataLoader(DATA, 4):
            loss_of(model, batch["input_ids"] if isinstance(batch, dict) else batch).backward()
            optimizer.step()
            optimizer.zero_grad()


def cadence():
    """Two optimizers on one backward, one of them every fourth time."""
    model, _ = made()
    slow = torch.optim.SGD(model.emb.parameters(), lr=0.1)
    fast = torch.optim.AdamW([*model.body.parameters(), *model.head.parameters()], lr=1e-2)
    for _ in range(3):
        for i, batch in enumerate(DataLoader(DATA, 4)):
            loss_of(model, batch).backward()
            fast.step()
            fast.zero_grad()
            if i % 4 == 3:
                slow.step()
                slow.zero_grad()


def scaler_accumulates():
    model, optimizer = made()
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for _ in range(3):
        for i, batch in enumerate(DataLoader(DATA, 4)):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = loss_of(model, batch) / 4
            scaler.scale(loss).backward()
            if i % 4 == 3:
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()


def own_optimizer():
    model, _ = made()

    class Signs:  # no torch.optim.Optimizer at all
        @torch.no_grad()
        def step(self):
            for p in model.parameters():
                p.data.add_(p.grad.sign(), alpha=-1e-3)

    optimizer = Signs()
    del _
    for _ in range(3):
        for i, batch in enumerate(DataLoader(DATA, 4)):
            (loss_of(model, batch) / 2).backward()
            if i % 2:
                optimizer.step()
                model.zero_grad()


def own_subclass():
    class Signs(torch.optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, {"lr": 1e-3})

        @torch.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    p.sub_(group["lr"] * p.grad.sign())

    class Slow(torch.optim.Optimizer):  # around another one, as Lookahead is
        def __init__(self, inner):
            self.inner = inner
            super().__init__(inner.param_groups, {"lr": 1.0})

        def step(self, closure=None):
            self.inner.step()

    model, _ = made()
    optimizer = Slow(Signs(model.parameters()))
    for _ in range(3):
        for batch in DataLoader(DATA, 4):
            loss_of(model, batch).backward()
            optimizer.step()
            optimizer.zero_grad()


def autograd_grad():
    """Gradients without a backward."""
    model, optimizer = made()
    for _ in range(3):
        for batch in DataLoader(DATA, 4):
            for p, g in zip(
                model.parameters(), torch.autograd.grad(loss_of(model, batch), [*model.parameters()])
            ):
                p.grad = g
            optimizer.step()


def gradient_penalty():
    model, optimizer = made()
    for _ in range(3):
        for batch in DataLoader(DATA, 4):
            optimizer.zero_grad()
            loss = loss_of(model, batch)
            grads = torch.autograd.grad(loss, [*model.parameters()], create_graph=True)
            (loss + 0.01 * sum(g.pow(2).sum() for g in grads)).backward()
            optimizer.step()


def two_passes():
    """Sharpness-aware minimisation: two backwards and one update on a batch."""
    model, optimizer = made()
    for _ in range(3):
        for batch in DataLoader(DATA, 4):
            loss_of(model, batch).backward()
            with torch.no_grad():
                moves = [0.01 * p.grad for p in model.parameters()]
                for p, move in zip(model.parameters(), moves):
                    p.add_(move)
            optimizer.zero_grad()
            loss_of(model, batch, show=False).backward()
            with torch.no_grad():
                for p, move in zip(model.parameters(), moves):
                    p.sub_(move)
            optimizer.step()
            optimizer.zero_grad()


def per_parameter():
    model, _ = made()
    optimizers = [torch.optim.SGD([p], lr=0.1) for p in model.parameters()]
    for _ in range(3):
        for batch in DataLoader(DATA, 4):
            loss_of(model, batch).backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()


def truncated():
    """Truncated back-propagation through time: four updates on every batch."""
    model, optimizer = made()
    for _ in range(3):
        for batch in DataLoader(torch.cat([DATA] * 4, dim=1), 4):
            for part in batch.split(8, 1):
                loss_of(model, part).backward()
                optimizer.step()
                optimizer.zero_grad()


def retries():
    """A backward that fails is done again in halves."""

    class Fail(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            raise RuntimeError("out of memory, on purpose")

    model, optimizer = made()
    for _ in range(3):
        for i, batch in enumerate(DataLoader(DATA, 4)):
            try:
                loss = loss_of(model, batch)
                (Fail.apply(loss) if i % 6 == 5 else loss).backward()
            except RuntimeError:
                optimizer.zero_grad()
                for half in batch.split(2):
                    (loss_of(model, half, show=False) / 2).backward()
            optimizer.step()
            optimizer.zero_grad()


def step_function_compiled():
    model, optimizer = made()

    @torch.compile(backend="aot_eager")
    def train_step(batch):
        loss = loss_of(model, batch, show=False)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    for _ in range(3):
        for batch in DataLoader(DATA, 4):
            print("loss", train_step(batch).item().hex())


def infinite():
    class Rows(IterableDataset):
        def __iter__(self):
            generator = torch.Generator().manual_seed(3)
            while True:
                yield {"input_ids": torch.randint(1, 50, (8,), generator=generator)}

    def first(loader, count):
        for i, batch in enumerate(loader):
            if i == count:
                return
            yield batch

    plain(first(DataLoader(Rows(), 4, num_workers=1), 48), epochs=1)


def generator():
    plain(({"input_ids": rows} for _ in range(3) for rows in DATA.split(4)), epochs=1)


def one_ahead():
    class Ahead:
        def __iter__(self):
            batches = iter(DataLoader(DATA, 4))
            after = next(batches)
            while after is not None:
                now, after = after, next(batches, None)
                yield now

    plain(Ahead())


def two_trainings():
    plain(epochs=2)
    plain(epochs=1)


def thread():
    worker = threading.Thread(target=plain)
    worker.start()
    worker.join()


def event_loop():
    async def train():
        model, optimizer = made()
        for _ in range(3):
            for batch in DataLoader(DATA, 4):
                loss_of(model, batch).backward()
                await asyncio.sleep(0)
                optimizer.step()
                optimizer.zero_grad()

    asyncio.run(train())


def streams():
    """Standard output and error are replaced, hidden and closed."""

    class Tee:
        def __init__(self, stream):
            self.stream = stream

        def write(self, text):
            return self.stream.write(text)

        def flush(self):
            self.stream.flush()

    sys.stdout = Tee(sys.stdout)
    sys.stderr.close()
    sys.stderr = None
    plain()


def descriptors():
    """Everything above 2 is closed as daemons do it; the numbers are used again for files of the job."""
    plain(epochs=1)
    os.closerange(3, 256)
    files = [open(f"own-{n}.txt", "w") for n in range(20)]  # noqa: SIM115
    plain(epochs=2)
    assert [os.path.getsize(file.name) for file in files] == [0] * 20


def moves():
    os.chdir(tempfile.mkdtemp())
    plain(epochs=1)
    os.chdir("/")
    plain(epochs=2)


def again():
    if "again" not in sys.argv:
        os.execv(sys.executable, [sys.executable, *sys.argv, "again"])
    plain()


def subprocess_trains():
    subprocess.run([sys.executable, __file__, "plain"], check=True)


def subprocess_with_few_variables():
    few = {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, __file__, "plain"], check=True, env=few)


def timer():
    """A periodic signal that goes on while the process ends."""
    import signal

    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
    plain()
    signal.setitimer(signal.ITIMER_REAL, 0)


def forked():
    pid = os.fork()
    if pid == 0:
        plain()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0


def pool(method="fork"):
    import multiprocessing

    with multiprocessing.get_context(method).Pool(1) as workers:
        workers.apply(plain)


def spawn_pool():
    pool("spawn")


def exits():
    plain()
    print("end of the job")
    sys.exit()


def warnings_are_errors():
    import warnings

    warnings.simplefilter("error")
    plain()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    print("end of the job")
