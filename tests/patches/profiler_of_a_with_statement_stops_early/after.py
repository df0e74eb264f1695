import autotune_short_profile
from torch.profiler import ProfilerActivity, profile


def train(loader):
    with autotune_short_profile.stop_early(profile(activities=[ProfilerActivity.CPU], record_shapes=True)) as prof:
        for batch in loader:
            step(batch)
    prof.export_chrome_trace("trace.json")
