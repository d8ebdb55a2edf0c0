#!/bin/sh
# TaskProlog of Slurm: lets the tasks of a job that asks for it (SEQPOINT=1) be seen by the daemon of
# their node. Slurm takes the lines "export NAME=value" into the task's environment.
#
#   slurm.conf:  TaskProlog=/usr/share/seqpoint/slurm/task_prolog.sh
#   a user:      srun --export=ALL,SEQPOINT=1 python3 train.py
#
# SEQPOINT_DIR: the folder of the daemon's sockets (default /run/seqpoint). SEQPOINT_PREFIX: where the
# package lies (default: /usr, or the folder that this file was installed in).
[ "${SEQPOINT:-0}" = 1 ] || exit 0

here=$(dirname "$(readlink -f "$0")")
prefix=${SEQPOINT_PREFIX:-$(readlink -f "$here/../../..")}
for library in "$prefix/lib/seqpoint/libseqpoint_inject.so" "$prefix/lib/libseqpoint_inject.so"; do
  [ -f "$library" ] && break
done
if [ ! -f "$library" ]; then
  echo "print seqpoint: there is no $library on $(hostname): the task runs without a profile"
  exit 0
fi

put() { printf 'export %s=%s\n' "$1" "$2"; }
put SEQPOINT_DIR "${SEQPOINT_DIR:-/run/seqpoint}"
# All tasks, and the run that goes on after the job was queued again, are one job.
put SEQPOINT_RUN_ID "${SEQPOINT_RUN_ID:-slurm-$SLURM_JOB_ID}"
put SEQPOINT_LIBRARY "$library"
# Another profiler that is there first keeps its place.
put CUDA_INJECTION64_PATH "${CUDA_INJECTION64_PATH:-$library}"
put NVTX_INJECTION64_PATH "${NVTX_INJECTION64_PATH:-$library}"
case ${NCCL_PROFILER_PLUGIN:-} in
  '') put NCCL_PROFILER_PLUGIN "$library" ;;
  [Nn][Oo][Nn][Ee] | STATIC_PLUGIN | "$library") ;;
  *) # a plugin of the user's is called by ours
    put SEQPOINT_NCCL_PLUGIN "$NCCL_PROFILER_PLUGIN"
    put NCCL_PROFILER_PLUGIN "$library"
    ;;
esac
adapter=$prefix/share/seqpoint/python
if [ -d "$adapter" ]; then
  put SEQPOINT_ADAPTER "$adapter"
  put PYTHONPATH "$adapter${PYTHONPATH:+:$PYTHONPATH}"
fi
