import torch
from torch.utils.data import DataLoader

def main():
	loader = DataLoader(
		dataset,
		batch_size=4,
		num_workers=4,
	)
	if loader is None:
		raise SystemExit
