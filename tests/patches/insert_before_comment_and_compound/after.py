def main():
    setup()

    # Batches
    warm_up()
    seed(1)
    for batch in make_loader(dataset):
        step(batch)
