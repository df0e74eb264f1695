from transformers import Trainer

report(first(), Trainer(model=build(), args=arguments).train())
