#!/usr/bin/env bash
# Copies this commit to every host of a TPU and installs its packages there. Run it again after every commit.
#
#   tpu/setup.sh --name=my-tpu --zone=us-west4-a [--project=P] [--dry_run]
#
# Uncommitted changes are not copied. Hosts whose requirements have not changed install nothing.
# --dry_run  print the commands, run none

source "$(dirname "$0")/common.sh"
read_flags "name! zone! project" "dry_run" "$@"
must_be_ready

bundle=$(mktemp -d)/txl_tf.tar.gz
trap 'rm -r "$(dirname "$bundle")"' EXIT
git -C "$(dirname "$0")/.." archive --format=tar.gz --prefix=txl_tf/ -o "$bundle" HEAD
cloud tpu-vm scp "$bundle" "$name:txl_tf.tar.gz" --worker=all
cloud tpu-vm ssh "$name" --worker=all '--command=tar -xzf txl_tf.tar.gz && bash txl_tf/tpu/on_host.sh install'
