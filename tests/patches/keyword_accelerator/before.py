from accelerate import Accelerator, FullyShardedDataParallelPlugin

accelerator = Accelerator(gradient_accumulation_steps=4, fsdp_plugin=FullyShardedDataParallelPlugin(fsdp_version=2))
model, optimizer = accelerator.prepare(model, optimizer)
