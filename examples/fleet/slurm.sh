#!/bin/bash
# A fleet as a Slurm array: 32 shards, each a process of one core, on whatever machines are free.
#
#   sbatch slurm.sh SNAPSHOTS RESULTS [OPTIONS OF gmlake-sim fleet]
#
# Both folders are on a file system that all machines share; SNAPSHOTS may also be s3://bucket/jobs/. Give the same line
# again to finish what was ended by a time limit: what is there already is not done again.
#SBATCH --job-name=gmlake-fleet
#SBATCH --array=0-31
#SBATCH --cpus-per-task=1
#SBATCH --mem=1G
#SBATCH --time=01:00:00
#SBATCH --requeue
#SBATCH --output=gmlake-fleet-%A-%a.log

snapshots=$1
results=$2
shift 2
# The number of shards is that of the array, as long as it counts from 0 in ones.
shard=$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT
# With --json a shard that came to its end says so, even if some recordings cannot be used: exit code 2, table errors.
said=$(gmlake-sim fleet "$snapshots" --out "$results" --shard "$shard" --jobs 1 --json "$@") || [ -n "$said" ]
code=$?
echo "$said"
exit "$code"
