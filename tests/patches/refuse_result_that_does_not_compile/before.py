def f():
    log(step())
