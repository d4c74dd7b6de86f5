#!/usr/bin/env bash
# Creates a TPU VM or pod slice and waits until it is ready; does nothing if it is, and replaces a preempted one.
#
#   tpu/create.sh --name=my-tpu --zone=us-west4-a --accelerator_type=v5litepod-8 [--spot] [--project=P]
#                 [--runtime_version=V] [--dry_run]
#
# --accelerator_type  type and size: v5litepod-8 is one host of 8 chips, v5litepod-32 a pod slice of 4 hosts
# --spot              a third of the price or less; may be preempted at any time
# --runtime_version   the hosts' system image [the base image of the generation]
# --dry_run           print the commands, run none

source "$(dirname "$0")/common.sh"
read_flags "name! zone! accelerator_type! runtime_version project" "spot dry_run" "$@"

if [[ ! $runtime_version ]]; then
  case $accelerator_type in
    v2-* | v3-* | v4-*) runtime_version=tpu-ubuntu2204-base ;;
    v5litepod-*) runtime_version=v2-alpha-tpuv5-lite ;;
    v5p-*) runtime_version=v2-alpha-tpuv5 ;;
    v6e-*) runtime_version=v2-alpha-tpuv6e ;;
    *) die "no system image is known for --accelerator_type=$accelerator_type: give --runtime_version" ;;
  esac
fi

request_state() {
  [[ ! $dry_run ]] || { echo ABSENT && return; }
  cloud queued-resources describe "$name" --format='value(state.state)' 2>/dev/null || echo ABSENT
}

state=$(tpu_state)
if [[ $state == READY ]]; then
  echo "TPU $name is READY"
  exit 0
fi
request=$(request_state)
case "$state $request" in
  PREEMPTED* | TERMINATED* | *" SUSPENDED" | *" SUSPENDING" | *" FAILED")
    echo "TPU $name is $state, its request $request: replacing it"
    cloud queued-resources delete "$name" --force --quiet
    request=ABSENT
    ;;
esac
if [[ $request == ABSENT ]]; then
  cloud queued-resources create "$name" "--node-id=$name" "--accelerator-type=$accelerator_type" \
    "--runtime-version=$runtime_version" ${spot:+--spot}
fi
if [[ $dry_run ]]; then exit 0; fi
until [[ $(tpu_state) == READY ]]; do
  request=$(request_state)
  [[ $request != FAILED ]] || die "the request for $name failed: gcloud compute tpus queued-resources describe $name"
  echo "waiting for TPU $name: its request is $request"
  sleep "${TPU_POLL_SECONDS:-30}"
done
echo "TPU $name is READY"
