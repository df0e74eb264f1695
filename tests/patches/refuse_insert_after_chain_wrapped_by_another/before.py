from transformers import Trainer

result = Trainer(model=build(), args=arguments).train()
