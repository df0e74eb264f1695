from transformers import AutoModelForCausalLM

def main():
    # The base model.
    model = AutoModelForCausalLM.from_pretrained(
        name,
        dtype="auto",
    ).to("cuda")  # one GPU

    model.train()
