#!/usr/bin/env bash
# The kernels' factorial on one NVIDIA GPU, in pieces that can each be stopped and continued.
#
#   tools/gpu_factorial.sh setup                 packages, metadata, models, data: checked, nothing served
#   tools/gpu_factorial.sh run N                 up to N launches of manifests/arms/sm70.yaml, then pack
#   tools/gpu_factorial.sh judge                 verdicts and report, then pack
#
# Environment:
#   SM70_WORK   where models, caches and the run live                    (default ~/sm70)
#   SM70_DATA   folder with the data: bfcl_eval wheel, gsm8k/, jsonschemabench/, tiny_qwen4exp/
#   SM70_WHEELS folder of wheels to install beside (optional: for a host without a registry)
#   SM70_ENV    shell file to source that puts vLLM on PYTHONPATH         (optional)
#   SM70_ARMS, SM70_MANIFEST, SM70_CONCURRENCY   another run, which may run beside the first on another GPU:
#     SM70_ARMS=manifests/arms/sm70-checks.yaml SM70_MANIFEST=manifests/sm70-checks.json SM70_CONCURRENCY=1,16
#     SM70_ARMS=manifests/arms/sm70-tp2.yaml    (two GPUs)
#   SM70_LIMIT_S  after so many seconds the run is interrupted, to be continued   (default 480)
#   OUT         where the small results go                                (default SM70_WORK/out)
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
work=${SM70_WORK:-$HOME/sm70}
out=${OUT:-$work/out}
arms=${SM70_ARMS:-manifests/arms/sm70.yaml}
manifest=${SM70_MANIFEST:-manifests/sm70.json}
concurrency=${SM70_CONCURRENCY:-1,4,8,16}
name=$(basename "$arms" .yaml)
run=$work/run-$name
mkdir -p "$work" "$out"

say() { printf '%s %s\n' "$(date -u +%H:%M:%S)" "$*"; }

environment() {
    # vLLM's own lines may set PYTHONPATH from an unset one.
    if [ -n "${SM70_ENV:-}" ]; then set +u; . "$SM70_ENV"; set -u; fi
    export PYTHONPATH="$work/site:$root${PYTHONPATH:+:$PYTHONPATH}"
    export EVALHARNESS_DATA="${SM70_DATA:?SM70_DATA: the folder with the data}"
    export EVALHARNESS_CACHE="$work/cache"
    export HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1 PYTHONUNBUFFERED=1
}

# Entry points are read from a distribution's metadata, which a source tree has not got.
metadata() {
    python3 - "$work/site" <<'PY'
import pathlib
import sys
import tomllib

project = tomllib.loads(pathlib.Path("pyproject.toml").read_text())["project"]
folder = pathlib.Path(sys.argv[1]) / f"{project['name']}-{project['version']}.dist-info"
folder.mkdir(parents=True, exist_ok=True)
head = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
(folder / "METADATA").write_text(head)
groups = {"console_scripts": project["scripts"], **project["entry-points"]}
lines = []
for group, points in groups.items():
    lines += [f"[{group}]", *(f"{name} = {value}" for name, value in points.items()), ""]
(folder / "entry_points.txt").write_text("\n".join(lines))
PY
}

# Those that the arms file names. The fault links what it does not change from the sound one.
models() {
    local name
    mkdir -p .sm70
    for name in $(grep -o '\.sm70/[a-z]*' "$arms" | sort -ur | grep -v cache); do
        name=${name#.sm70/}
        if [ ! -e "$work/$name/made_by.json" ]; then
            case $name in
            fault) python3 tools/tiny_qwen4exp/make_model.py --size rank --fault 1.01 \
                --like "$work/rank" --out "$work/fault" ;;
            *) python3 tools/tiny_qwen4exp/make_model.py --size "$name" --out "$work/$name" ;;
            esac
        fi
        ln -sfn "$work/$name" ".sm70/$name"
    done
}

setup() {
    environment
    if [ -n "${SM70_WHEELS:-}" ] && [ ! -e "$work/site/.wheels" ]; then
        python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade \
            --target "$work/site" "$SM70_WHEELS"/*.whl
        touch "$work/site/.wheels"
    fi
    metadata
    models
    say "verify $manifest"
    python3 -m evalharness manifest verify "$manifest"
    say "arms"
    python3 -m evalharness arms "$arms" --dry-run
    say "kernels"
    python3 - <<'PY'
import torch

from kernels_sm70.build import build
from kernels_sm70.registry import OPERATIONS

if torch.cuda.is_available():
    major, minor = torch.cuda.get_device_capability()
    for operation in OPERATIONS:
        print(operation, build(operation, f"sm_{major}{minor}").stamp.cubin_digest[:16])
PY
    say "setup done"
}

factorial() {
    local code=0
    say "factorial, at most $1 launches"
    # An interrupt, not a kill: the harness stops its server and keeps what is complete.
    timeout --signal=INT --kill-after=60 "${SM70_LIMIT_S:-480}" \
        python3 -m evalharness factorial --arms "$arms" --manifest "$manifest" \
        --concurrency "$concurrency" --seed 7 --max-launches "$1" --out "$run" || code=$?
    say "factorial ended with $code (0 complete, 12 more launches to come)"
    case $code in
    0 | 12 | 124) ;;
    *) failed=$code ;;
    esac
}

judge() {
    local code=0
    python3 -m evalharness noninferiority "$run" || code=$?
    say "noninferiority ended with $code (0 admitted, 10 undecided, 11 harm, 12 incomplete)"
}

# Few small files, two folders deep: the report and what proves it; the whole run in parts beside
# them (cat run.tar.xz.* | tar -xJ).
pack() {
    local small=$work/pack-$name
    if [ ! -d "$run" ]; then
        say "nothing to pack: $run was not made"
        return
    fi
    rm -rf "$small"
    mkdir -p "$small" "$out/$name"
    (cd "$run" && find . \( -name server.json -o -name plan.json -o -name 'report.*' -o -name SHA256SUMS \
        -o -name index.html -o -path '*route_hits*' \) -type f -exec cp --parents {} "$small" \;)
    nvidia-smi --query-gpu=name,driver_version --format=csv >"$small/gpu.csv" 2>/dev/null || true
    tar -C "$small" -czf "$out/$name/results.tar.gz" .
    rm -f "$out/$name"/run.tar.xz.*
    tar -C "$work" --exclude=lock -cf - "$(basename "$run")" | xz -T0 -3 |
        split -b 15M - "$out/$name/run.tar.xz."
    for file in report.json report.md; do
        [ ! -e "$run/report/$file" ] || cp "$run/report/$file" "$out/$name/"
    done
    ls -l "$out/$name"
}

failed=0
case "${1:-}" in
setup) setup ;;
run)
    environment
    factorial "${2:?run N: how many launches}"
    pack
    ;;
judge)
    environment
    judge
    pack
    ;;
*)
    sed -n '/^#!/d; /^#/!q; p' "$0"
    exit 2
    ;;
esac
if [ "$failed" != 0 ] && [ -d "$run/arms" ]; then
    find "$run/arms" -name server.log -printf '%T@ %p\n' | sort -n | tail -1 | cut -d' ' -f2- |
        xargs -r tail -n 60
fi
exit "$failed"
