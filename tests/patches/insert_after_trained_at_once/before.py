from transformers import Trainer

if __name__ == "__main__":
    model = build()
    # the whole run
    Trainer(
        model=model,
        args=arguments,
    ).train()  # and nothing else
    print("done")
