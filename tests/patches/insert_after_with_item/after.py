def main():
    with open_model("a") as model, lock:
        model.set_attn_implementation("sdpa")
        model.train()
