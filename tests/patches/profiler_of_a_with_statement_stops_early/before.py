from torch.profiler import ProfilerActivity, profile


def train(loader):
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as prof:
        for batch in loader:
            step(batch)
    prof.export_chrome_trace("trace.json")
