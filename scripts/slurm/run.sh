#!/usr/bin/env bash
#SBATCH --job-name=spsample
# Run a command on all ranks of a Slurm job: everything is said by arguments, nothing needs to be edited.
#
#   sbatch [OPTIONS OF SBATCH] scripts/slurm/run.sh [OPTIONS] COMMAND...
#
#   --launcher srun|mpirun|torchrun   who starts the ranks (srun)
#   --per task|core|gpu               ranks: the job's tasks, or one for each core or GPU of the nodes (task)
#   --mpi TYPE                        what srun and MPI speak with each other: pmix, cray_shasta, ... (pmix); none for
#                                     ranks that exchange over gloo or NCCL
#
#   sbatch -N 2 --ntasks-per-node 4 -c 16 scripts/slurm/run.sh spsample doctor --comm
#   sbatch -N 2 --gpus-per-node 4 --exclusive scripts/slurm/run.sh --per gpu --launcher torchrun spsample doctor --comm
#
# With srun and mpirun ranks exchange over MPI where mpi4py is installed, else over torch.distributed, which finds rank 0
# by MASTER_ADDR and MASTER_PORT set here. A rank that ends badly ends the job. docs/launching.md has notes on clusters.
set -euo pipefail

launcher=srun per=task mpi=pmix
while [[ ${1-} == --* ]]; do
  case $1 in
    --launcher) launcher=$2 ;;
    --per) per=$2 ;;
    --mpi) mpi=$2 ;;
    *) echo "$0: unknown option $1" >&2; exit 2 ;;
  esac
  shift 2
done
[ $# -gt 0 ] || { echo "$0: no command; see the head of this file" >&2; exit 2; }
nodes=${SLURM_JOB_NUM_NODES:?"run this by sbatch, or inside of salloc"}

case $per in
  task) ranks=${SLURM_NTASKS:-$nodes} ;;
  core) ranks=$((nodes * SLURM_CPUS_ON_NODE)) ;;
  gpu) ranks=$((nodes * ${SLURM_GPUS_ON_NODE:?"the job has no GPUs: give sbatch --gpus-per-node"})) ;;
  *) echo "$0: --per $per: task, core or gpu" >&2; exit 2 ;;
esac
per_node=$(((ranks + nodes - 1) / nodes))
cores=$((SLURM_CPUS_ON_NODE / per_node))
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((cores > 0 ? cores : 1))}
export MASTER_ADDR=${MASTER_ADDR:-$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)}
export MASTER_PORT=${MASTER_PORT:-$((20000 + SLURM_JOB_ID % 20000))}

together=(srun --kill-on-bad-exit=1 --nodes="$nodes")
case $launcher in
  srun)
    exec "${together[@]}" --mpi="$mpi" --ntasks="$ranks" --ntasks-per-node="$per_node" "$@" ;;
  mpirun)
    exec mpirun -n "$ranks" --map-by "ppr:$per_node:node" "$@" ;;
  torchrun)
    [ $((ranks % nodes)) -eq 0 ] || { echo "$0: $ranks ranks on $nodes nodes: torchrun needs as many on each" >&2; exit 2; }
    # torchrun speaks no MPI, and would try for a minute to reach a name that nobody knows.
    exec "${together[@]}" --mpi=none --ntasks="$nodes" --ntasks-per-node=1 bash -c '
      getent ahosts "$MASTER_ADDR" > /dev/null || {
        echo "${SLURMD_NODENAME-$HOSTNAME} cannot resolve MASTER_ADDR=$MASTER_ADDR: set it to an address of the first node" >&2
        exit 2
      }
      exec torchrun "$@"' torchrun --nnodes="$nodes" --nproc-per-node="$per_node" --rdzv-id="$SLURM_JOB_ID" \
      --rdzv-backend=c10d --rdzv-endpoint="$MASTER_ADDR:$MASTER_PORT" --no-python "$@" ;;
  *) echo "$0: --launcher $launcher: srun, mpirun or torchrun" >&2; exit 2 ;;
esac
