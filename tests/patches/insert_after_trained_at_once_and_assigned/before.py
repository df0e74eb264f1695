from transformers import Trainer

def main():
    seed(); loss = Trainer(model=build(), args=arguments).train(resume_from_checkpoint=last()).training_loss
    return loss
