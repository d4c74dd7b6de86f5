#!/usr/bin/env bash
# Commands for a TPU's hosts: the other scripts of this folder copy this file there and call it over ssh.
#
#   on_host.sh install          installs the Python environment, unless it is there with the same requirements
#   on_host.sh serve            starts a pod's TensorFlow server, unless it is running
#   on_host.sh train FLAGS..    starts scripts/train.py in the background, unless it is running; restarts it if killed
#   on_host.sh status           prints running, finished, failed, stopped or absent
#   on_host.sh stop             sends SIGTERM to training, and waits until it has saved
#
# Logs and process ids are in run/ beside this folder.

set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p run

# is_running WHAT: whether the process in run/WHAT.pid exists.
is_running() {
  [[ -e run/$1.pid ]] && kill -0 "$(cat "run/$1.pid")" 2>/dev/null
}

# start WHAT COMMAND..: runs a command in the background, detached from this shell, with its output in run/WHAT.log.
start() {
  local what="$1"
  shift
  if is_running "$what"; then
    echo "$what runs already: process $(cat "run/$what.pid")"
    return
  fi
  setsid nohup "$@" >>"run/$what.log" 2>&1 </dev/null &
  echo $! >"run/$what.pid"
  echo "$what started: process $!, log in $PWD/run/$what.log"
}

# Restarts training whenever it is killed; ends when it finishes, fails or is told to stop.
keep_training() {
  local stopping="" child="" status
  trap 'stopping=1; [[ ! $child ]] || kill -TERM "$child" 2>/dev/null || true' TERM
  echo running >run/train.status
  while [[ ! $stopping ]]; do
    status=0
    .venv/bin/python scripts/train.py "$@" &
    child=$!
    wait "$child" || status=$?
    # A signal also ends `wait`, while training is still saving.
    while kill -0 "$child" 2>/dev/null; do
      status=0
      wait "$child" || status=$?
    done
    case $status in
      0) echo finished >run/train.status && return ;;
      1 | 2) echo failed >run/train.status && return ;;
      130 | 143) break ;;
    esac
    echo "training ended with status $status: it continues from its last checkpoint"
    sleep "${TPU_RESTART_SECONDS:-10}"
  done
  echo stopped >run/train.status
}

case "${1-}" in
  install)
    stamp=$(sha256sum tpu/requirements.txt tpu/on_host.sh)
    if [[ $(cat .venv/installed-tpu 2>/dev/null) != "$stamp" ]]; then
      python3 -c 'import ensurepip' 2>/dev/null || sudo apt-get install --yes --quiet python3-venv
      python3 -m venv .venv
      # TensorFlow needs the last two to find a pod's hosts by its name.
      .venv/bin/pip install --quiet -r tpu/requirements.txt 'google-api-python-client>=2,<3' 'oauth2client>=4.1,<5'
      # tensorflow-text depends on the TensorFlow without TPUs, which would overwrite the other.
      .venv/bin/pip install --quiet --no-deps 'tensorflow-text==2.20.1' --editable .
      echo "$stamp" >.venv/installed-tpu
    fi
    ;;
  serve)
    start server .venv/bin/python -m tensorflow.python.tools.grpc_tpu_worker
    ;;
  train)
    shift
    start train bash tpu/on_host.sh keep_training "$@"
    ;;
  keep_training)
    shift
    [[ " $* " == *" --tpu=local "* ]] || export TPU_LOAD_LIBRARY=0 # on a pod the server holds the TPU
    keep_training "$@"
    ;;
  status)
    if [[ ! -e run/train.status ]]; then
      echo absent
    elif [[ $(cat run/train.status) == running ]] && ! is_running train; then
      echo absent # the host was restarted
    else
      cat run/train.status
    fi
    ;;
  stop)
    if is_running train; then
      kill -TERM "$(cat run/train.pid)"
      while is_running train; do sleep 1; done
    fi
    bash tpu/on_host.sh status
    ;;
  *)
    sed -n '2,/^$/s/^# \{0,1\}//p' "$0"
    exit 2
    ;;
esac
