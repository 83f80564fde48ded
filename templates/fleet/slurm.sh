#!/bin/bash
#SBATCH --job-name=relay
#SBATCH --array=1-3
#SBATCH --cpus-per-task=2
#SBATCH --mem=4G
#SBATCH --time=08:00:00
#SBATCH --signal=B:INT@300
#SBATCH --requeue
# An array of machines works on a plan. The key comes from the environment (sbatch --export=ALL).
# Five minutes before the time limit Slurm sends a signal, and relay hands over; a requeued job goes on from there.
set -euo pipefail
remote=${RELAY_REMOTE:?the address of the repository}
branch=${RELAY_BRANCH:-main}
place=${RELAY_PLACE:-$HOME/relay}/worker-${SLURM_ARRAY_TASK_ID:-1}
if [ ! -e "$place/.git" ]; then
  git clone --branch "$branch" -- "$remote" "$place"
fi
cd "$place"
relay work --phase all &
trap 'kill -INT $!' INT TERM
wait $! || wait $!
