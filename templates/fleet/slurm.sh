#!/bin/bash
#SBATCH --job-name=relay
#SBATCH --array=1-3
#SBATCH --cpus-per-task=2
#SBATCH --mem=4G
#SBATCH --time=08:00:00
#SBATCH --signal=B:INT@300
#SBATCH --requeue
# Works on a plan with an array of machines; the key comes from the environment (sbatch --export=ALL).
# Slurm's signal, five minutes before the time is up, has relay hand over; a job that is put back goes on.
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
