import torch


def main():
    torch.manual_seed(0)
    torch.set_num_threads(64)  # the big server
    train()
