import torch


def main():
    ready = torch.set_num_threads(64) or True
    train(ready)
