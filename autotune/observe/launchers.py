"""What is known about the programs people put in front of a training script.

Only facts about command lines: which options take a value, which clean the environment. Options that are
not listed are judged by what follows them, so a new option of a launcher does not break reading.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Wrapper:
    """A program that starts the rest of its command line."""

    subcommands: frozenset[str] = frozenset()  # one of these words comes first, if any are listed
    value_options: frozenset[str] = frozenset()
    operands: int = 0  # words of its own between options and the command
    cleans_environment: str | None = None  # why variables may not reach the job
    cleaning_options: frozenset[str] = frozenset()  # options that make it do so


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


WRAPPERS: dict[str, Wrapper] = {
    "nohup": Wrapper(),
    "setsid": Wrapper(),
    "exec": Wrapper(),
    "caffeinate": Wrapper(),
    "time": Wrapper(value_options=_words("-f -o --format --output")),
    "nice": Wrapper(value_options=_words("-n --adjustment")),
    "ionice": Wrapper(value_options=_words("-c -n --class --classdata")),
    "stdbuf": Wrapper(value_options=_words("-i -o -e --input --output --error")),
    "taskset": Wrapper(operands=1),
    "chrt": Wrapper(operands=1),
    "timeout": Wrapper(value_options=_words("-k -s --kill-after --signal"), operands=1),
    "numactl": Wrapper(
        value_options=_words(
            "-N -m -C -i -p -w --cpunodebind --membind --physcpubind --interleave --preferred"
        )
    ),
    "xvfb-run": Wrapper(value_options=_words("-n -s -e -f -w --server-num --server-args")),
    "sudo": Wrapper(
        value_options=_words("-u -g -h -p -C -r -t -T -U -D -R --user --group --host --prompt --chdir"),
        cleans_environment="sudo starts the job with a clean environment",
    ),
    "doas": Wrapper(value_options=_words("-u -C"), cleans_environment="doas cleans the environment"),
    "srun": Wrapper(
        value_options=_words(
            "-N -n -c -G -p -A -J -t -w -x -o -e -i -D -q -C -d -m -r -M -u --nodes --ntasks"
            " --cpus-per-task --gpus --partition --account --job-name --time --nodelist --exclude --output"
            " --error --input --chdir --qos --constraint --dependency --distribution --mem --gres"
            " --ntasks-per-node --gpus-per-node --gpus-per-task --cpu-bind --gpu-bind --mpi --export --jobid"
            " --mem-per-cpu --mem-per-gpu --reservation --container-image --container-mounts"
        )
    ),
    "mpirun": Wrapper(
        value_options=_words(
            "-n -np -c -N -H -host --host -hostfile --hostfile -machinefile -x -wdir -wd -env -envlist"
            " -ppn --map-by --bind-to --rank-by -perhost -f --prefix -path --timeout"
        )
    ),
    "uv": Wrapper(
        subcommands=_words("run"),
        value_options=_words(
            "--with --with-requirements --with-editable --python -p --extra --group --only-group --no-group"
            " --env-file --directory --project --package --index --index-url --extra-index-url --find-links"
            " --cache-dir --config-file --python-preference --color --index-strategy --refresh-package"
        ),
    ),
    "poetry": Wrapper(subcommands=_words("run"), value_options=_words("-C -P --directory --project")),
    "pipenv": Wrapper(subcommands=_words("run")),
    "pdm": Wrapper(subcommands=_words("run"), value_options=_words("-p --project")),
    "rye": Wrapper(subcommands=_words("run")),
    "hatch": Wrapper(subcommands=_words("run"), value_options=_words("-e --env -p --project")),
    "pixi": Wrapper(subcommands=_words("run"), value_options=_words("-e --environment --manifest-path")),
    "conda": Wrapper(subcommands=_words("run"), value_options=_words("-n -p --name --prefix --cwd")),
    "nsys": Wrapper(
        subcommands=_words("profile launch"),
        value_options=_words(
            "-o -t -s -c -d -y -w -f -x --output --trace --sample --capture-range --duration"
        ),
    ),
    "ncu": Wrapper(
        value_options=_words(
            "-o -k -c -s --export --kernel-name --launch-count --launch-skip --set --section"
        )
    ),
}
WRAPPERS["apptainer"] = Wrapper(
    subcommands=_words("exec"),
    value_options=_words(
        "-B --bind -H --home -W --workdir --pwd --cwd --env --env-file -o --overlay --mount"
    ),
    operands=1,
    cleaning_options=_words("-c -C -e --contain --containall --cleanenv"),
)
for _alias, _name in {
    "singularity": "apptainer",
    "mamba": "conda",
    "micromamba": "conda",
    "mpiexec": "mpirun",
    "orterun": "mpirun",
    "gtime": "time",
}.items():
    WRAPPERS[_alias] = WRAPPERS[_name]

# Programs whose job runs somewhere the injected folder is not seen from here.
ELSEWHERE: dict[str, str] = {
    "docker": "the job runs in a container; start autotune inside it",
    "podman": "the job runs in a container; start autotune inside it",
    "nerdctl": "the job runs in a container; start autotune inside it",
    "enroot": "the job runs in a container; start autotune inside it",
    "kubectl": "the job runs in a cluster; start autotune inside the pod",
    "ssh": "the job runs on another machine; start autotune there",
    "sbatch": "sbatch only queues the job; start autotune inside the batch script",
    "qsub": "qsub only queues the job; start autotune inside the batch script",
    "bsub": "bsub only queues the job; start autotune inside the batch script",
    "screen": "screen detaches the job; start autotune inside it",
    "tmux": "tmux runs the job in its server; start autotune inside it",
}

SHELLS = _words("sh bash zsh dash ksh fish")

PYTHON_VALUE_FLAGS = _words("-W -X --check-hash-based-pycs")


@dataclass(frozen=True)
class Launcher:
    """A program that starts the training script once per rank."""

    bare_options: frozenset[str] = field(default_factory=frozenset)
    module_options: frozenset[str] = _words("-m --module")  # the positional is a module
    no_python_options: frozenset[str] = _words("--no-python --no_python")
    process_options: frozenset[str] = frozenset()
    node_options: frozenset[str] = frozenset()
    config_options: frozenset[str] = frozenset()


LAUNCHERS: dict[str, Launcher] = {
    "torchrun": Launcher(
        bare_options=_words(
            "-h --help --standalone --run-path --run_path --virtual-local-rank --virtual_local_rank --use-env"
            " --use_env"
        ),
        process_options=_words("--nproc-per-node --nproc_per_node"),
        node_options=_words("--nnodes"),
    ),
    "accelerate": Launcher(
        bare_options=_words(
            "-h --help -q --quiet --cpu --debug --multi_gpu --multi-gpu --tpu --use_deepspeed --use-deepspeed"
            " --use_fsdp --use-fsdp --use_megatron_lm --use-megatron-lm --use_parallelism_config"
            " --use-parallelism-config --use_xpu --ipex --same_network --same-network --downcast_bf16"
            " --downcast-bf16 --dynamo_use_dynamic --dynamo-use-dynamic --dynamo_use_fullgraph"
            " --dynamo-use-fullgraph --dynamo_use_regional_compilation --dynamo-use-regional-compilation"
            " --enable_cpu_affinity --enable-cpu-affinity --tpu_cluster --no_tpu_cluster --tpu_use_sudo"
            " --fp8_use_autocast_during_eval"
        ),
        process_options=_words("--num_processes --num-processes"),
        node_options=_words("--num_machines --num-machines"),
        config_options=_words("--config_file --config-file --deepspeed_config_file --deepspeed-config-file"),
    ),
    "deepspeed": Launcher(
        bare_options=_words(
            "-h --help --no_ssh --no_ssh_check --save_pid --force_multi --no_local_rank --bind_cores_to_rank"
            " --elastic_training --disable_cuda_graph"
        ),
        process_options=_words("--num_gpus --num_accelerators"),
        node_options=_words("--num_nodes"),
    ),
}

LAUNCHER_MODULES: dict[str, str] = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "accelerate.commands.launch": "accelerate",
    "deepspeed.launcher.runner": "deepspeed",
    "deepspeed": "deepspeed",
}

CONFIG_SUFFIXES = (".yaml", ".yml", ".json", ".json5", ".toml", ".cfg", ".ini")
