from transformers import AutoModelForCausalLM

model = wrap(AutoModelForCausalLM.from_pretrained("a"))
AutoModelForCausalLM.from_pretrained("b")
models = [AutoModelForCausalLM.from_pretrained(n) for n in names]
make = lambda n: AutoModelForCausalLM.from_pretrained(n)
