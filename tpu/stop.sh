#!/usr/bin/env bash
# Stops training on a TPU, which saves a checkpoint first. --delete deletes the TPU, which ends its cost.
#
#   tpu/stop.sh --name=my-tpu --zone=us-west4-a [--delete] [--project=P] [--dry_run]
#
# Does nothing if nothing is running.
# --dry_run  print the commands, run none

source "$(dirname "$0")/common.sh"
read_flags "name! zone! project" "delete dry_run" "$@"

state=$(tpu_state)
if [[ $state == READY || $dry_run ]]; then
  on_hosts 0 stop
else
  echo "TPU $name is $state: nothing is running there"
fi
if [[ $delete ]]; then
  if [[ $dry_run ]] || cloud queued-resources describe "$name" >/dev/null 2>&1; then
    cloud queued-resources delete "$name" --force --quiet
  elif [[ $state != ABSENT ]]; then # made without a request
    cloud tpu-vm delete "$name" --quiet
  fi
fi
