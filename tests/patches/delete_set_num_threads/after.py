import torch


def main():
    torch.manual_seed(0)
    train()
