from lib import build_loader

loader = build_loader(dataset)
