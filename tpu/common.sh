# shellcheck shell=bash
# Functions for the scripts of this folder: flags, errors in one line, calls of gcloud that --dry_run only prints.
set -euo pipefail

# shellcheck disable=SC2034 # each script reads some of them
# Flags, empty where not given. A script names those it takes in its call of read_flags.
name="" zone="" project="" accelerator_type="" runtime_version="" spot="" pod="" delete="" dry_run=""
rest=() # the arguments after --

die() {
  echo "error: $*" >&2
  exit 1
}

# Prints the comment at the head of the script.
usage() {
  sed -n '2,/^$/s/^# \{0,1\}//p' "$0"
}

# read_flags VALUES SWITCHES ARGUMENTS..: sets a variable for each --flag=value and each --switch.
# A flag in VALUES that ends in ! must be given.
read_flags() {
  local values=" ${1//!/} " required="$1" switches=" $2 " argument flag
  shift 2
  while (($#)); do
    argument="$1" flag="${1#--}" flag="${flag%%=*}"
    shift
    if [[ $argument == --help ]]; then
      usage
      exit 0
    elif [[ $argument == -- ]]; then
      rest=("$@")
      break
    elif [[ $argument == --*=* && $values == *" $flag "* ]]; then
      printf -v "$flag" %s "${argument#*=}"
    elif [[ $argument == --* && $switches == *" $flag "* && $argument != *=* ]]; then
      printf -v "$flag" %s 1
    else
      die "$0 does not take '$argument': see $0 --help"
    fi
  done
  for flag in $required; do
    [[ $flag != *! ]] || flag_is_given "${flag%!}"
  done
  if [[ ! $dry_run ]] && ! command -v gcloud >/dev/null; then
    die "gcloud is not installed: https://cloud.google.com/sdk/docs/install"
  fi
}

flag_is_given() {
  [[ ${!1} ]] || die "$0 needs --$1=...: see $0 --help"
}

# cloud COMMAND..: `gcloud compute tpus COMMAND..` for the TPU's zone and project; with --dry_run prints it.
cloud() {
  local command=(gcloud compute tpus "$@" "--zone=$zone")
  [[ ! $project ]] || command+=("--project=$project")
  if [[ $dry_run ]]; then
    printf '%q ' "${command[@]}"
    echo
  else
    "${command[@]}"
  fi
}

# Prints the state of the TPU VM, such as READY or PREEMPTED, or ABSENT. With --dry_run always ABSENT.
tpu_state() {
  [[ ! $dry_run ]] || { echo ABSENT && return; }
  cloud tpu-vm describe "$name" --format='value(state)' 2>/dev/null || echo ABSENT
}

# on_hosts WORKER COMMAND..: runs tpu/on_host.sh COMMAND.. on a worker (0, 1, .. or all).
on_hosts() {
  local worker="$1" command
  shift
  printf -v command '%q ' bash txl_tf/tpu/on_host.sh "$@"
  cloud tpu-vm ssh "$name" "--worker=$worker" "--command=${command% }"
}

must_be_ready() {
  local state
  [[ $dry_run ]] && return
  state=$(tpu_state)
  [[ $state == READY ]] || die "TPU $name in $zone is $state, not READY: run tpu/create.sh first"
}
