def main():
    setup()

    # Batches
    for batch in make_loader(dataset):
        step(batch)
