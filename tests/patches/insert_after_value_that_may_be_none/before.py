from torch.utils.data import DataLoader

def loaders(data, held_out, args):
	train = DataLoader(data) if data else None
	other = DataLoader(data) if args.shuffle else DataLoader(data, shuffle=True)
	return None if held_out is None else DataLoader(held_out)
