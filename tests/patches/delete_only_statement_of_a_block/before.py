def main(args):
    if args.checkpointing:
        model.gradient_checkpointing_enable()
    if debug: torch.autograd.set_detect_anomaly(True)
    model.train().gradient_checkpointing_enable()
