from transformers import Trainer

async def main():
    return (await Trainer(model=build()).fit())["loss"]
