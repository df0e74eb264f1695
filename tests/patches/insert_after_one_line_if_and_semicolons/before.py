from transformers import AutoModelForCausalLM

if big: model = AutoModelForCausalLM.from_pretrained("a")  # big
else:
    seed(); model = AutoModelForCausalLM.from_pretrained("b"); model.train()
