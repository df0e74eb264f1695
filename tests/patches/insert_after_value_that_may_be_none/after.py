from torch.utils.data import DataLoader

def loaders(data, held_out, args):
	train = DataLoader(data) if data else None
	if train is not None:
		shim.group(train)
		shim.done()
	other = DataLoader(data) if args.shuffle else DataLoader(data, shuffle=True)
	shim.group(other)
	shim.done()
	autotune_value = None if held_out is None else DataLoader(held_out)
	if autotune_value is not None:
		shim.group(autotune_value)
		shim.done()
	return autotune_value
