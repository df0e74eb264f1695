from transformers import AutoModelForCausalLM

def build(name):
    return AutoModelForCausalLM.from_pretrained(name)
