from transformers import AutoModelForCausalLM

def build(name):
    autotune_value = AutoModelForCausalLM.from_pretrained(name)
    autotune_value.set_attn_implementation("sdpa")
    return autotune_value
