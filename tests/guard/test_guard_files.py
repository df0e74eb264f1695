"""Python's file functions under the guard: the job sees its changes, the user's files stay as they are."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from guarded import Guarded, tree

# Each piece of code asserts what the job must see.
PIECES = {
    "write and read back": """
        open("out/new.txt", "w").write("new")
        assert open("out/new.txt").read() == "new"
        import os, pathlib, glob
        assert os.path.exists("out/new.txt") and os.path.getsize("out/new.txt") == 3
        assert sorted(os.listdir("out")) == ["checkpoint-5", "log.txt", "new.txt"]
        assert pathlib.Path("out/new.txt").read_text() == "new"
        assert sorted(glob.glob("out/*.txt")) == ["out/log.txt", "out/new.txt"]
        assert sorted(p.name for p in pathlib.Path("out").glob("*.txt")) == ["log.txt", "new.txt"]
        assert os.path.realpath("out/new.txt") == os.path.join(os.getcwd(), "out/new.txt")
    """,
    "append sees the old content": """
        with open("out/log.txt", "a") as log: log.write("new line\\n")
        assert open("out/log.txt").read() == "old line\\nnew line\\n"
    """,
    "read-write keeps the rest": """
        with open("data.txt", "r+b") as f: f.write(b"D")
        assert open("data.txt").read() == "Data\\n"
    """,
    "overwrite": """
        from pathlib import Path
        Path("data.txt").write_text("x")
        assert Path("data.txt").read_text() == "x" and Path("data.txt").stat().st_size == 1
    """,
    "exclusive creation": """
        try: open("data.txt", "x"); raise SystemExit("no error")
        except FileExistsError as e: assert e.filename == "data.txt" or e.filename.endswith("/data.txt")
        open("brand.txt", "x").close()
        try: open("brand.txt", "x"); raise SystemExit("no error")
        except FileExistsError: pass
    """,
    "missing folder": """
        try: open("nowhere/x.txt", "w"); raise SystemExit("no error")
        except FileNotFoundError: pass
        try: open("data.txt/x", "w"); raise SystemExit("no error")
        except NotADirectoryError: pass
        try: open("missing.txt"); raise SystemExit("no error")
        except FileNotFoundError as e: assert e.filename == "missing.txt"
    """,
    "remove": """
        import os
        os.remove("data.txt")
        assert not os.path.exists("data.txt") and "data.txt" not in os.listdir(".")
        try: os.remove("data.txt"); raise SystemExit("no error")
        except FileNotFoundError: pass
        try: open("data.txt"); raise SystemExit("no error")
        except FileNotFoundError: pass
        open("data.txt", "w").write("again"); assert open("data.txt").read() == "again"
        os.unlink("data.txt"); assert not os.path.exists("data.txt")
    """,
    "rmtree and make again": """
        import os, shutil
        shutil.rmtree("out/checkpoint-5")
        assert os.listdir("out") == ["log.txt"]
        os.makedirs("out/checkpoint-5")
        assert os.listdir("out/checkpoint-5") == []
        shutil.rmtree("out"); assert not os.path.isdir("out")
        os.makedirs("out/a/b")
        assert list(os.walk("out")) == [("out", ["a"], []), ("out/a", ["b"], []), ("out/a/b", [], [])]
        shutil.rmtree("gone", ignore_errors=True)
        try: shutil.rmtree("gone"); raise SystemExit("no error")
        except FileNotFoundError: pass
    """,
    "mkdir and rmdir": """
        import os
        try: os.mkdir("out"); raise SystemExit("no error")
        except FileExistsError: pass
        os.makedirs("out", exist_ok=True); os.makedirs("out/x/y"); os.rmdir("out/x/y")
        assert os.listdir("out/x") == []
        try: os.rmdir("out"); raise SystemExit("no error")
        except OSError: pass
        os.removedirs("out/x")
    """,
    "rename a file and a folder": """
        import os, shutil
        os.rename("data.txt", "moved.txt")
        assert not os.path.exists("data.txt") and open("moved.txt").read() == "data\\n"
        os.rename("out/checkpoint-5", "out/best")
        assert open("out/best/model.bin", "rb").read() == b"five"
        assert sorted(os.listdir("out")) == ["best", "log.txt"]
        open("tmp.txt", "w").write("t"); os.replace("tmp.txt", "moved.txt")
        assert open("moved.txt").read() == "t" and not os.path.exists("tmp.txt")
        os.makedirs("out/tmp-9"); open("out/tmp-9/f", "w").close(); os.rename("out/tmp-9", "out/checkpoint-9")
        assert os.listdir("out/checkpoint-9") == ["f"] and not os.path.exists("out/tmp-9")
        try: os.rename("out/checkpoint-9", "out/best"); raise SystemExit("no error")
        except OSError: pass
    """,
    "into and out of a temporary folder": """
        import os, shutil, tempfile
        with tempfile.TemporaryDirectory() as t:
            p = os.path.join(t, "f"); open(p, "w").write("from tmp")
            shutil.move(p, "data.txt"); assert open("data.txt").read() == "from tmp" and not os.path.exists(p)
            shutil.move("out/log.txt", t); assert open(t + "/log.txt").read() == "old line\\n"
            assert not os.path.exists("out/log.txt")
        with tempfile.NamedTemporaryFile("w", dir="out", delete=False) as f: f.write("n")
        os.replace(f.name, "out/final.txt"); assert open("out/final.txt").read() == "n"
    """,
    "copies": """
        import os, shutil
        shutil.copy2("data.txt", "copy.txt"); shutil.copytree("out", "out2")
        assert sorted(os.listdir("out2")) == ["checkpoint-5", "log.txt"]
        shutil.copyfile("copy.txt", "out/log.txt"); assert open("out/log.txt").read() == "data\\n"
        os.link("data.txt", "hard.txt"); open("hard.txt", "a").write("x")
        assert open("hard.txt").read() == "data\\nx"
    """,
    "links": """
        import os
        os.symlink("checkpoint-5", "out/latest")
        assert open("out/latest/model.bin", "rb").read() == b"five" and os.path.islink("out/latest")
        open("out/latest/model.bin", "wb").write(b"changed"); open("out/latest/extra", "w").write("e")
        assert open("out/checkpoint-5/model.bin", "rb").read() == b"changed"
        assert open("out/latest/extra").read() == "e"
        os.unlink("out/latest"); assert os.path.exists("out/checkpoint-5")
        os.makedirs("out/checkpoint-6"); os.symlink(os.path.abspath("out/checkpoint-6"), "out/latest")
        open("out/latest/m", "w").close(); assert os.listdir("out/checkpoint-6") == ["m"]
    """,
    "attributes": """
        import os
        os.chmod("data.txt", 0o600); os.utime("data.txt", (1, 1))
        open("n.txt", "w").close(); os.chmod("n.txt", 0o600); assert os.stat("n.txt").st_mode & 0o777 == 0o600
        os.truncate("data.txt", 2); assert open("data.txt").read() == "da"
    """,
    "descriptors": """
        import os
        fd = os.open("data.txt", os.O_WRONLY | os.O_APPEND); os.write(fd, b"z"); os.close(fd)
        fd = os.open("data.txt", os.O_RDONLY); assert os.read(fd, 99) == b"data\\nz"; os.close(fd)
        folder = os.open("out", os.O_RDONLY)
        fd = os.open("rel.txt", os.O_WRONLY | os.O_CREAT, dir_fd=folder); os.write(fd, b"r"); os.close(fd)
        assert open("out/rel.txt").read() == "r"
        os.unlink("log.txt", dir_fd=folder); assert not os.path.exists("out/log.txt")
    """,
    "bytes paths and scandir": """
        import os
        open(b"out/b.bin", "wb").close()
        assert sorted(os.listdir(b"out")) == [b"b.bin", b"checkpoint-5", b"log.txt"]
        with os.scandir("out") as it:
            found = {e.name: (e.is_dir(), e.is_file(), e.path, os.fspath(e), e.stat().st_size) for e in it}
        assert found["b.bin"] == (False, True, "out/b.bin", "out/b.bin", 0) and found["checkpoint-5"][0]
    """,
    "changing the working folder": """
        import os
        home = os.getcwd()
        os.makedirs("runs/today"); os.chdir("runs/today")
        assert os.getcwd() == home + "/runs/today"
        open("here.txt", "w").write("h"); assert open("../../data.txt").read() == "data\\n"
        open("../../data.txt", "a").write("more"); os.chdir(home)
        assert open("runs/today/here.txt").read() == "h" and open("data.txt").read() == "data\\nmore"
    """,
    "libraries": """
        import logging, csv, json, sqlite3, gzip, zipfile, pickle, os, numpy
        logging.basicConfig(filename="out/log.txt"); logging.error("boo"); logging.shutdown()
        assert open("out/log.txt").read().startswith("old line\\n") and "boo" in open("out/log.txt").read()
        numpy.save("a.npy", numpy.ones(3)); assert numpy.load("a.npy").sum() == 3
        numpy.arange(3).tofile("raw.bin"); assert numpy.fromfile("raw.bin", dtype=int).tolist() == [0, 1, 2]
        m = numpy.memmap("mm.bin", mode="w+", shape=(4,)); m[:] = 1; m.flush()
        assert os.path.getsize("mm.bin") == 4
        db = sqlite3.connect("x.db")
        db.execute("create table t (a)"); db.execute("insert into t values (1)"); db.commit()
        assert sqlite3.connect("x.db").execute("select count(*) from t").fetchone() == (1,)
        with zipfile.ZipFile("z.zip", "w") as z: z.write("data.txt")
        assert zipfile.ZipFile("z.zip").namelist() == ["data.txt"]
        assert pickle.loads(pickle.dumps(os.remove)) is os.remove and pickle.loads(pickle.dumps(open)) is open
        import helper; assert helper.VALUE == 3
    """,
    "programs": """
        import os, subprocess
        assert os.system("rm -rf out/checkpoint-5") == 0 and not os.path.exists("out/checkpoint-5")
        subprocess.run(["mkdir", "-p", "out/deep/er"], check=True); assert os.path.isdir("out/deep/er")
        subprocess.run("cp data.txt out/copy.txt && touch out/t", shell=True, check=True)
        assert open("out/copy.txt").read() == "data\\n" and os.path.exists("out/t")
        subprocess.check_call(["mv", "data.txt", "out/deep"]); assert os.path.exists("out/deep/data.txt")
        assert subprocess.run(["rm", "data.txt"]).returncode != 0
        assert subprocess.check_output(["cat", "out/copy.txt"]) == b"data\\n"
        assert subprocess.check_output(["ls"], cwd="out/deep").split() == [b"data.txt", b"er"]
        assert subprocess.check_output("echo hi | tr h H", shell=True) == b"Hi\\n"
        os.system("rm -f out/*.txt"); assert sorted(os.listdir("out")) == ["deep", "t"]
        for line in ("echo x > helper.py", "cat data.txt | tee helper.py", "sed -i s/3/4/ helper.py"):
            try: subprocess.run(line, shell=True); raise SystemExit("no error: " + line)
            except PermissionError as e: assert "--allow-write" in str(e)
        subprocess.run(["git", "commit", "-am", "x"], check=True)
        subprocess.run(["aws", "s3", "cp", "out/t", "s3://bucket/t"], check=True)
    """,
}


@pytest.mark.parametrize("name", PIECES)
def test_job_sees_its_changes_and_the_project_stays(guarded: Guarded, name: str) -> None:
    before = tree(guarded.project)
    guarded.python(PIECES[name])
    assert tree(guarded.project) == before


@pytest.mark.parametrize("name", ["write and read back", "rename a file and a folder", "links", "remove"])
def test_the_same_through_a_tree_of_links(guarded: Guarded, tmp_path: Path, name: str) -> None:
    """A trial starts in a shadow folder whose entries are links into the project."""
    user = guarded.project
    shadow = tmp_path / "shadow"
    shadow.mkdir()
    for entry in user.iterdir():
        (shadow / entry.name).symlink_to(entry)
    guarded.project = shadow
    before, links = tree(user), tree(shadow)
    guarded.python(PIECES[name].replace("os.path.realpath", "(lambda p: os.path.abspath(p))"))
    assert tree(user) == before
    assert tree(shadow) == links


@functools.cache
def _other_pythons() -> list[str]:
    """Interpreters of other versions on this machine that start."""
    found = {}
    for minor in (10, 11, 12, 13, 14):
        names = [shutil.which(f"python3.{minor}") or ""]
        names += map(str, Path("~/.pyenv/versions").expanduser().glob(f"3.{minor}.*/bin/python"))
        for name in filter(None, names):
            done = subprocess.run([name, "-c", "import sys; print(sys.version_info[1])"], capture_output=True)
            if done.stdout.strip() == str(minor).encode() and minor != sys.version_info[1]:
                found[minor] = name
    return list(found.values())


@pytest.mark.full
def test_every_python_version(guarded: Guarded, tmp_path: Path) -> None:
    if not _other_pythons():
        pytest.skip("no other Python on this machine")
    for interpreter in _other_pythons():
        for name, code in PIECES.items():
            if name != "libraries":  # needs numpy
                project = tmp_path / os.path.basename(os.path.dirname(os.path.dirname(interpreter))) / name
                shutil.copytree(guarded.project, project, symlinks=True)
                one = Guarded(project, tmp_path / "launch", interpreter=interpreter)
                before = tree(project)
                one.python(code)
                assert tree(project) == before, (interpreter, name)
