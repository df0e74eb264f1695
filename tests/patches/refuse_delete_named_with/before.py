with detect_anomaly() as mode:
    print(mode)
