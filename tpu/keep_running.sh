#!/usr/bin/env bash
# Creates, sets up and launches, again after every preemption, until training has finished.
#
#   tpu/keep_running.sh --name=my-tpu --zone=us-west4-a --accelerator_type=v5litepod-8 [--spot] [--pod] [--project=P]
#                       [--runtime_version=V] [--dry_run] -- FLAGS OF scripts/train.py
#
# Runs on your machine, or on a small VM that outlives the TPU. Ends with status 0 when training has finished, 1 when it
# failed or was stopped. The TPU is not deleted then: tpu/stop.sh --delete.
# --dry_run  print the commands of one round, run none

here=$(dirname "$0")
source "$here/common.sh"
read_flags "name! zone! accelerator_type! runtime_version project" "spot pod dry_run" "$@"

where=("--name=$name" "--zone=$zone" ${project:+"--project=$project"} ${dry_run:+--dry_run})
while true; do
  "$here/create.sh" "${where[@]}" "--accelerator_type=$accelerator_type" \
    ${runtime_version:+"--runtime_version=$runtime_version"} ${spot:+--spot}
  # The TPU may be preempted at any moment: then the next round begins.
  if "$here/setup.sh" "${where[@]}" && "$here/launch.sh" "${where[@]}" ${pod:+--pod} -- "${rest[@]}"; then
    if [[ $dry_run ]]; then exit 0; fi
    while [[ $(tpu_state) == READY ]]; do
      status=$(on_hosts 0 status 2>/dev/null | tail -n 1) || status=unknown
      case $status in
        finished) echo "training has finished" && exit 0 ;;
        failed | stopped) die "training has $status; see the end of run/train.log on the TPU's first host" ;;
      esac
      sleep "${TPU_POLL_SECONDS:-60}"
    done
  fi
  [[ $(tpu_state) != READY ]] || die "TPU $name is READY, but training could not be started there: see above"
  echo "TPU $name is $(tpu_state): training continues on the next one"
done
