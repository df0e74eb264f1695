from transformers import AutoModelForCausalLM

if big:
    model = AutoModelForCausalLM.from_pretrained("a")  # big
    model.set_attn_implementation("sdpa")
else:
    seed(); model = AutoModelForCausalLM.from_pretrained("b")
    model.set_attn_implementation("sdpa")
    model.train()
