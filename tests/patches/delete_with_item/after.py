import torch

def main():
    # find the NaN
    for batch in loader:
        step(batch)
    with torch.no_grad():
        evaluate()
