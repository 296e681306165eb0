#!/usr/bin/env bash
# What a machine with a GPU and no network runs first: is it right, how fast is it, and where does the time go.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

usage() {
    cat <<'TEXT'
tests/cuda/first_run.sh STEP

  prepare    on a machine with package registries and no GPU: the compiled core and kernels, wheels and the real graphs
             (of SPSAMPLE_DATA, if set), into FIRST_RUN
  correct    with a GPU, ten minutes at most: bulks of every sampler, the tests that need a GPU, compute-sanitizer
  sampling   with a GPU, ten minutes at most: bulks against WholeGraph, cuSPARSE and the backend cpu; an epoch
  features   with a GPU, ten minutes at most: time and bus bytes of a batch's features by the share of rows on the GPU
  profile    with a GPU, ten minutes at most: milliseconds of each kernel, and what Nsight Compute says of the large ones

Carry this tree and FIRST_RUN, without its venv, to the machine with the GPU. Its Python needs the packages of the
extras `gpu` and `dev`, torch, pytest and hypothesis among them, and the versions that `prepare` was told:

  FIRST_RUN=build/first_run   what `prepare` makes
  OUT=$FIRST_RUN/results      where the other steps write
  PYTHON=python3              of all steps; that of `prepare` is of the same version as that of the GPU's machine
  NVRTC=13.0.88               version of nvidia-cuda-nvrtc there; kernels of another one are compiled anew
  ARCHS="sm_80 sm_90"         GPUs to compile for
  WHEELS="NAME==VERSION ..."  what that Python lacks: tomli-w, plotly, and WholeGraph for its torch (torch 2.11 by default)
TEXT
}

FIRST_RUN=${FIRST_RUN:-build/first_run}
OUT=${OUT:-$FIRST_RUN/results}
PYTHON=${PYTHON:-python3}
NVRTC=${NVRTC:-13.0.88}
ARCHS=${ARCHS:-sm_80 sm_90}
WHEELS=${WHEELS:-pylibwholegraph-cu13==26.2.1 libwholegraph-cu13==26.2.1 libraft-cu13==26.2.0 librmm-cu13==26.2.0
    rmm-cu13==26.2.0 rapids-logger==0.2.3 tomli-w==1.2.0 plotly==7.1.0}

say() { printf '%s\n' "first_run: $*" >&2; }

# --- prepare --------------------------------------------------------------------------------------------------------

prepare() {
    local venv data=${SPSAMPLE_DATA:-} wheel
    FIRST_RUN=$(mkdir -p "$FIRST_RUN" && cd "$FIRST_RUN" && pwd) venv=$FIRST_RUN/venv
    mkdir -p "$FIRST_RUN"/{core,cubins,wheels,data}
    [ -x "$venv/bin/python" ] || "$PYTHON" -m venv "$venv"
    say "the core and the compiler of kernels, for $("$venv/bin/python" --version)"
    "$venv/bin/python" -m pip install --quiet . "nvidia-cuda-nvrtc==$NVRTC" 'cuda-bindings>=13.0,<14'
    rm -f "$FIRST_RUN"/core/*
    cp "$(cd / && "$venv/bin/python" -c 'import spsample._core as core; print(core.__file__)')" "$FIRST_RUN/core/"
    # shellcheck disable=SC2086  # words
    SPSAMPLE_CACHE_DIR=$FIRST_RUN/cubins PYTHONPATH=$PWD "$venv/bin/python" tests/cuda/compile_kernels.py \
        $(printf -- '--arch %s ' $ARCHS)
    say "wheels"
    for wheel in $WHEELS; do
        download "$venv/bin/python" "$wheel" || say "no $wheel: what needs it will be named as missing"
    done
    [ -z "$data" ] || cp "$data"/*.npz "$FIRST_RUN/data/"
    du -sh "$FIRST_RUN"/{core,cubins,wheels,data}
}

download() {
    local version platforms='manylinux_2_28_x86_64 manylinux_2_27_x86_64 manylinux_2_24_x86_64 manylinux_2_17_x86_64 manylinux2014_x86_64'
    version=$("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    # shellcheck disable=SC2046,SC2086  # words
    "$1" -m pip download --quiet --no-deps --only-binary=:all: --python-version "$version" --implementation cp \
        $(printf -- '--platform %s ' $platforms) -d "$FIRST_RUN/wheels" "$2"
}

# --- with a GPU -------------------------------------------------------------------------------------------------------

# What the steps need: the core, the kernels, results' folder, a GPU.
begin() {
    OUT=$(mkdir -p "$OUT" && cd "$OUT" && pwd)
    [ -d "$FIRST_RUN/cubins" ] || { say "$FIRST_RUN/cubins is missing: run 'prepare' where there are registries"; exit 2; }
    FIRST_RUN=$(cd "$FIRST_RUN" && pwd)
    cp -u "$FIRST_RUN"/core/_core*.so spsample/
    export PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$PWD SPSAMPLE_CACHE_DIR=$FIRST_RUN/cubins
    install_wheels
    [ -n "${SPSAMPLE_DATA:-}" ] || export SPSAMPLE_DATA=$FIRST_RUN/data
    "$PYTHON" -c 'import sys, spsample; sys.exit("cpu" not in spsample.backends.available_backends())' \
        || { say "the core in $FIRST_RUN/core does not fit $PYTHON: run 'prepare' with a Python of its version"; exit 2; }
    nvidia-smi -L >"$OUT/gpu.txt" 2>&1 || { say "no GPU here (nvidia-smi finds none); all else that '$1' needs is here"; exit 3; }
    say "$(cat "$OUT/gpu.txt")"
    carried=$(find "$FIRST_RUN/cubins" -name '*.cubin' | wc -l)
}

# measure LIMIT NAME COMMAND...: within so many seconds, into NAME.log; goes on where it fails.
measure() {
    local limit=$1 name=$2 status=0 start=$SECONDS
    shift 2
    say "$name: $*"
    timeout "$limit" "$@" >"$OUT/$name.log" 2>&1 || status=$?
    tail -n "${LINES_SHOWN:-25}" "$OUT/$name.log"
    case $status in 0) status=ok ;; 124) status="stopped after $limit s" ;; *) status="failed ($status)" ;; esac
    summary+=("$name: $status, $((SECONDS - start)) s")
    [ "$status" = ok ] || failed=1
}

end() {
    local made
    made=$(($(find "$FIRST_RUN/cubins" -name '*.cubin' | wc -l) - carried))
    [ "$made" = 0 ] || summary+=("$made kernels were compiled here: is NVRTC another one than $NVRTC?")
    printf '%s\n' "${summary[@]}" | tee "$OUT/$1.txt"
    exit "$failed"
}

# The carried wheels, and the library of NCCL that WholeGraph needs, which torch brings.
install_wheels() {
    local site=$FIRST_RUN/site nccl
    compgen -G "$FIRST_RUN/wheels/*.whl" >/dev/null || return 0
    "$PYTHON" -m pip install --quiet --no-index --no-deps --no-compile --upgrade --target "$site" "$FIRST_RUN"/wheels/*.whl \
        || say "the carried wheels are of another Python than $PYTHON"
    export PYTHONPATH=$PYTHONPATH:$site
    nccl=$("$PYTHON" -c 'import nvidia.nccl as nccl; print(list(nccl.__path__)[0])') || say "no nvidia.nccl, which torch brings"
    export LD_LIBRARY_PATH=$nccl/lib:${LD_LIBRARY_PATH:-}
}

correct() {
    local tool options=(-q --tb=short --durations=8) several=() sanitizer
    "$PYTHON" -c 'import pytest_timeout' 2>/dev/null && options+=(--timeout=60)
    "$PYTHON" -c 'import xdist' 2>/dev/null && several=(-n 8)
    sanitizer=(compute-sanitizer --report-api-errors no --error-exitcode 9 --target-processes application-only)
    measure 60 small "$PYTHON" tests/cuda/small_bulk.py
    measure 150 tests "$PYTHON" -m pytest -m 'gpu and not slow' tests/cuda --maxfail 25 "${options[@]}" "${several[@]}" \
        -k 'not memory_that_runs_out'
    measure 60 memory "$PYTHON" -m pytest -m gpu tests/cuda "${options[@]}" -k memory_that_runs_out # takes all of it
    for tool in memcheck racecheck; do
        measure 60 "$tool" "${sanitizer[@]}" --tool "$tool" "$PYTHON" tests/cuda/small_bulk.py
    done
    measure 110 large "$PYTHON" -m pytest -m 'gpu and slow' tests/cuda --maxfail 5 "${options[@]}" \
        -k 'full_size or (unweighted or weighted) and large'
}

# bench LIMIT NAME CASE OPTION...: a case of `spsample bench`, into a folder of its own; run again, it goes on.
bench() {
    local limit=$1 name=$2
    shift 2
    measure "$limit" "$name" "$PYTHON" -m spsample.cli.main bench "$@" --graph-cache "$FIRST_RUN/graphs" --out "$OUT/$name"
}

sampling() {
    measure 40 wholegraph "$PYTHON" -c 'import torch, pylibwholegraph.torch; print("WholeGraph is there")'
    bench 420 sampling gpu --rounds 3
    bench 140 epoch gpu-epoch --rounds 2
}

features() {
    local graph real
    real=$(compgen -G "$SPSAMPLE_DATA/*cnr2000.npz") || true
    # shellcheck disable=SC2086  # none, or one
    for graph in rmat:20,16 rmat:21,32 $real; do
        bench 200 "features-$(basename "$graph" .npz)" gpu-features --graph "$graph"
    done
}

profile() {
    local sampling nsight sections kernels
    sections=(SpeedOfLight Occupancy MemoryWorkloadAnalysis SchedulerStats WarpStateStats LaunchStats)
    nsight=(ncu --target-processes all --clock-control none --csv --page raw "${sections[@]/#/--section=}")
    bench 240 kernels gpu --side 'spsample cuda' --times kernel
    kernels='sample_uniform_narrow|mark_found|number_columns|rank_slots|place_known|place_new'
    for sampling in sage weighted; do # 18 launches, and 9, are one bulk; the first of four is left out
        measure 180 "nsight-$sampling" "${nsight[@]}" -k "regex:$kernels" --launch-skip 18 --launch-count 18 \
            --log-file "$OUT/nsight-$sampling.csv" "$PYTHON" -m spsample.cli.main bench gpu --side 'spsample cuda' --rounds 3 \
            --sampling "$sampling:15,10,5" --graph-cache "$FIRST_RUN/graphs" --out "$OUT/nsight-$sampling"
        kernels='plan_weighted|plan_weighted_long|draw_summed'
    done
}

case ${1:-} in
    prepare) prepare ;;
    correct | sampling | features | profile)
        summary=() failed=0 carried=0
        begin "$1"
        "$1"
        end "$1"
        ;;
    *)
        usage >&2
        exit 2
        ;;
esac
