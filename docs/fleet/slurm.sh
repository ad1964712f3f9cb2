#!/bin/bash
# A campaign as a Slurm job: sbatch docs/fleet/slurm.sh. A job that ran into its time limit is submitted again as it is.
#SBATCH --job-name=tuning
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=32
#SBATCH --exclusive
#SBATCH --time=08:00:00
#SBATCH --signal=B:INT@120
set -euo pipefail

source "$HOME/tuning/bin/activate"
umask 077
export RAY_USAGE_STATS_ENABLED=0 RAY_AUTH_MODE=token
# One secret for this job; the home folder is shared, so that every node reads it.
export RAY_AUTH_TOKEN_PATH="$HOME/.tuning-$SLURM_JOB_ID"
trap 'rm -f "$RAY_AUTH_TOKEN_PATH"' EXIT
python -c 'import secrets; print(secrets.token_hex(32), end="")' > "$RAY_AUTH_TOKEN_PATH"

head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
address="$(srun --nodes=1 --ntasks=1 -w "$head" hostname --ip-address | awk '{print $1}'):6379"

srun --nodes=1 --ntasks=1 -w "$head" \
    ray start --head --node-ip-address="${address%:*}" --port=6379 --dashboard-host=127.0.0.1 --block &
sleep 15
if [ "$SLURM_JOB_NUM_NODES" -gt 1 ]; then
    srun --nodes=$((SLURM_JOB_NUM_NODES - 1)) --ntasks=$((SLURM_JOB_NUM_NODES - 1)) --exclude="$head" \
        ray start --address="$address" --block &
    sleep 15
fi

RAY_ADDRESS="$address" tunewright fleet run campaign.toml &
driver=$!
trap 'kill -INT $driver' INT
wait $driver
