def main():
    with open_model("a") as model, lock:
        model.train()
