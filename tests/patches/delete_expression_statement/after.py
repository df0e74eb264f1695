def main():
    model = build()

    model.train()
