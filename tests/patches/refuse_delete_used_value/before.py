model = model.gradient_checkpointing_enable()
