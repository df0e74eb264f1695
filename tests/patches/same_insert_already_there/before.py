from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained(name)
model.set_attn_implementation("sdpa")
