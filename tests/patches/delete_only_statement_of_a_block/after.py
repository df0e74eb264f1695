def main(args):
    if args.checkpointing:
        pass
    if debug:
        pass
    model.train()
