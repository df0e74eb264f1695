[m.gradient_checkpointing_enable() for m in models]
