"""Runs a script or module the way `python` does, with the observer booted before it.

Used as `python -I run_main.py script.py args` when the interpreter is told to ignore the injected folder.
"""

import os
import sys


def _boot():
    from importlib.util import module_from_spec, spec_from_file_location

    folder = os.path.dirname(os.path.realpath(__file__))
    if "_autotune_probe" in sys.modules:
        return
    spec = spec_from_file_location(
        "_autotune_probe", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    package = module_from_spec(spec)
    sys.modules["_autotune_probe"] = package
    spec.loader.exec_module(package)
    from _autotune_probe import boot

    boot.start(os.path.dirname(folder), False)


def _run(words):
    import runpy

    sys.argv[:] = words
    own = os.path.dirname(os.path.realpath(__file__))
    if sys.path and os.path.realpath(sys.path[0] or ".") == own:
        if words[0] == "-c":
            sys.path[0] = ""
        else:
            sys.path[0] = os.getcwd() if words[0] == "-m" else os.path.dirname(os.path.abspath(words[0]))
    if words[0] == "-m":
        del sys.argv[0]
        runpy._run_module_as_main(words[1])
        return
    if words[0] == "-c":
        del sys.argv[1]
        _exec(compile(words[1], "<string>", "exec"), {"__doc__": None, "__spec__": None})
        return
    script = words[0]
    if os.path.isdir(script) or (not script.endswith((".py", ".pyw")) and _is_zip(script)):
        runpy.run_path(script, run_name="__main__")
        return
    with open(script, "rb") as file:
        code = compile(file.read(), script, "exec")
    _exec(code, {"__file__": script, "__doc__": None, "__spec__": None})


def _exec(code, names):
    """In the real __main__, emptied of what is ours."""
    main = sys.modules["__main__"].__dict__
    for name in [n for n in main if not n.startswith("__") or n == "__file__"]:
        del main[name]
    main.update(names)
    exec(code, main)


def _is_zip(path):
    import zipfile

    return zipfile.is_zipfile(path)


if __name__ == "__main__":
    try:
        _boot()
    except BaseException:
        import traceback

        hello = os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..", "hello")
        try:
            with open(os.path.join(hello, f"{os.getpid()}.traceback.txt"), "w") as log:
                log.write(traceback.format_exc())
        except OSError:
            pass
    _run(sys.argv[1:])
