from transformers import Trainer

def main():
    seed()
    autotune_value = Trainer(model=build(), args=arguments)
    autotune_value.data_collator = shim.flatten(autotune_value.data_collator)
    shim.attend(autotune_value.model)
    loss = autotune_value.train(resume_from_checkpoint=last()).training_loss
    return loss
