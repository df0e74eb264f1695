import torch

def main():
    # find the NaN
    with torch.autograd.detect_anomaly():
        for batch in loader:
            step(batch)
    with torch.no_grad(), torch.autograd.detect_anomaly(check_nan=True):
        evaluate()
