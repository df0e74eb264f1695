while ready():
    if a:
        pass
    elif prepared():
        pass
