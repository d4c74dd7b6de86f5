#!/usr/bin/env bash
# Starts training on a TPU, in the background of its first host; does nothing if it is running.
#
#   tpu/launch.sh --name=my-tpu --zone=us-west4-a [--pod] [--project=P] [--dry_run] -- --preset=wt103_large \
#                 --data_dir=gs://my-bucket/wt103 --model_dir=gs://my-bucket/runs/wt103
#
# The arguments after -- are flags of scripts/train.py; --tpu is added. Started again with the same --model_dir, training
# continues from its last checkpoint. tpu/keep_running.sh does that after preemptions.
# --pod      the TPU has several hosts: a TensorFlow server starts on each, and the first host's program controls them
# --dry_run  print the commands, run none

source "$(dirname "$0")/common.sh"
read_flags "name! zone! project" "pod dry_run" "$@"
for flag in preset data_dir model_dir; do
  [[ " ${rest[*]-}" == *" --$flag="* ]] || die "after -- give --$flag=...: see $0 --help"
done
for flag in data_dir model_dir; do
  [[ " ${rest[*]}" == *" --$flag=gs://"* ]] || die "--$flag must be on gs://: a TPU's hosts and their disks are temporary"
done
must_be_ready

if [[ $pod ]]; then
  on_hosts all serve
  on_hosts 0 train "--tpu=$name" "${rest[@]}"
else
  on_hosts 0 train --tpu=local "${rest[@]}"
fi
