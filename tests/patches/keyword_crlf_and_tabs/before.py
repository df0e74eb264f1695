import torch
from torch.utils.data import DataLoader

def main():
	loader = DataLoader(
		dataset,
		batch_size=4,
	)
