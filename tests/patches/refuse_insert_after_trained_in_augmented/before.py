from transformers import Trainer

total = last_total()
total += Trainer(model=build(), args=arguments).train().training_loss
