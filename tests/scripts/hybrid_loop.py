"""A tiny hybrid model: packed rows with position ids that start again, eager attention, checkpointing."""

import torch
from transformers import AutoConfig, AutoModelForCausalLM

torch.manual_seed(0)
config = AutoConfig.for_model(
    "qwen3_next",
    vocab_size=64,
    hidden_size=32,
    intermediate_size=32,
    num_hidden_layers=4,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=16,
    linear_num_value_heads=2,
    linear_num_key_heads=2,
    linear_key_head_dim=8,
    linear_value_head_dim=8,
    num_experts=2,
    num_experts_per_tok=1,
    moe_intermediate_size=16,
    shared_expert_intermediate_size=16,
)
model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
model.gradient_checkpointing_enable()
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(7):
    ids = torch.randint(1, 64, (1, 24))
    positions = torch.cat([torch.arange(10), torch.arange(14)])[None]
    loss = model(input_ids=ids, labels=ids, position_ids=positions, use_cache=False).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("loss", loss.item().hex())
print("end of the job")
