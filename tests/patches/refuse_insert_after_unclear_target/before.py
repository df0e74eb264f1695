from transformers import AutoModelForCausalLM

model, info = AutoModelForCausalLM.from_pretrained("a", output_loading_info=True)
for model in AutoModelForCausalLM.from_pretrained("b"):
    pass
