from transformers import Trainer

async def main():
    autotune_value = Trainer(model=build())
    autotune_value.data_collator = shim.flatten(autotune_value.data_collator)
    shim.attend(autotune_value.model)
    return (await autotune_value.fit())["loss"]
