from transformers import Trainer

if __name__ == "__main__":
    model = build()
    # the whole run
    autotune_value = Trainer(
        model=model,
        args=arguments,
    )
    autotune_value.data_collator = shim.flatten(autotune_value.data_collator)
    shim.attend(autotune_value.model)
    autotune_value.train()  # and nothing else
    print("done")
