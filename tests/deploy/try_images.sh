#!/usr/bin/env bash
# Builds the images of deploy/container with buildah and starts them as the manifests of
# deploy/kubernetes do: a hub, a node's daemon as another user, and a training that has the library
# from a copy, with TLS between node and hub. The base is mmdebstrap's minbase under the name
# debian:12-slim. Needs root, mmdebstrap, buildah, openssl and Debian's mirror. Without a Kubernetes:
# no read-only root, no NetworkPolicy, and a file in place of PostgreSQL.
#   tests/deploy/try_images.sh FOLDER_OF_PACKAGES BUILD
# Exit status 77: skipped, with the reason.
set -euo pipefail
packages=$(realpath "$1")
build=$(realpath "$2")
containers=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../../deploy/container")
say() { printf '%s\n' "$*" >&2; }
for program in mmdebstrap buildah openssl; do
  command -v $program >/dev/null || { say "skipped: $program is not there; apt-get install $program"; exit 77; }
done
[ "$(id -u)" -eq 0 ] || { say "skipped: only root can run containers here"; exit 77; }

work=$(mktemp -d --tmpdir seqpoint-images.XXXXXX)
export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot BUILDAH_FORMAT=oci
ours() { buildah --root "$work/storage" --runroot "$work/running" "$@"; }
started=()
finish() {
  local process
  for process in "${started[@]}"; do kill -- "-$process" 2>/dev/null || true; done
  wait
  ours rm --all >/dev/null 2>&1 || true
  ours rmi --all --force >/dev/null 2>&1 || true
  rm -rf "$work"
}
trap finish EXIT

say "the base, from Debian's mirror"
mmdebstrap --quiet --variant=minbase bookworm "$work/base.tar"
base=$(ours from scratch)
ours add --quiet "$base" "$work/base.tar" / >/dev/null
ours commit --quiet "$base" debian:12-slim >/dev/null
rm "$work/base.tar"
for name in node hub; do
  say "the image of the $name"
  ours bud --pull-never --quiet -f "$containers/$name.Containerfile" -t "seqpoint-$name" "$packages" >"$work/$name.build" 2>&1 ||
    { cat "$work/$name.build"; exit 1; }
done

mkdir "$work/tls" "$work/sockets" "$work/store" "$work/hub" "$work/library"
cd "$work/tls"
openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.crt -days 2 -subj /CN=tried 2>/dev/null
for name in node hub; do
  openssl req -newkey rsa:2048 -nodes -keyout $name.key -out $name.csr -subj /CN=$name 2>/dev/null
  openssl x509 -req -in $name.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out $name.crt -days 2 \
    -extfile <(echo subjectAltName=DNS:localhost) 2>/dev/null
done
chmod 644 ./*.key
cd "$work"

in_image() {  # IMAGE USER VOLUMES... -- COMMAND...
  local image=$1 user=$2 volumes=() container
  shift 2
  while [ "$1" != -- ]; do volumes+=(-v "$1"); shift; done
  shift
  container=$(ours from --pull-never "$image")
  ours run --user "$user" "${volumes[@]}" "$container" -- "$@"
}
start() {
  local log=$1
  shift
  set -m
  in_image "$@" >"$log" 2>&1 &
  started+=($!)
  set +m
}
await() {
  local _
  for _ in $(seq 100); do
    grep -q "$2" "$1" && return
    sleep 0.1
  done
  cat "$1" >&2
  say "FAILED: no \"$2\" in $(basename "$1")"
  exit 1
}

say "the hub, as user 65532"
chown 65532 "$work/hub"
start "$work/hub.log" seqpoint-hub 65532 "$work/hub:/run/seqpoint" "$work/tls:/etc/seqpoint-tls:ro" -- \
  env SEQPOINTD_STORE=/run/seqpoint/hub.db seqpointd --accept-nodes --listen 127.0.0.1:17443 \
  --tls-certificate /etc/seqpoint-tls/hub.crt --tls-key /etc/seqpoint-tls/hub.key --tls-client-ca /etc/seqpoint-tls/ca.crt
await "$work/hub.log" "ready: "

say "the node's daemon, as user 1000"
in_image seqpoint-node 0 "$work/sockets:/run/seqpoint" "$work/store:/var/lib/seqpointd" -- \
  /bin/sh -c "chown 1000 /run/seqpoint /var/lib/seqpointd && chmod 700 /run/seqpoint /var/lib/seqpointd"
start "$work/node.log" seqpoint-node 1000 "$work/sockets:/run/seqpoint" "$work/store:/var/lib/seqpointd" \
  "$work/tls:/etc/seqpoint-tls:ro" -- env SEQPOINTD_DIR=/run/seqpoint SEQPOINTD_STORE=/var/lib/seqpointd/seqpoint.db \
  seqpointd --hub localhost:17443 --hub-ca /etc/seqpoint-tls/ca.crt \
  --tls-certificate /etc/seqpoint-tls/node.crt --tls-key /etc/seqpoint-tls/node.key
await "$work/node.log" "is connected"

say "a training, as user 1000, with the library from a copy"
chmod 777 "$work/library"
in_image seqpoint-node seqpoint "$work/library:/seqpoint" -- \
  /bin/cp -r /usr/lib/seqpoint/libseqpoint_inject.so /usr/share/seqpoint/python /seqpoint/
mkdir "$work/training"
cp -rL "$build/bin/seqpoint_workload" "$build/softgpu" "$work/training"
in_image seqpoint-node 1000 "$work/sockets:/run/seqpoint:ro" "$work/library:/seqpoint:ro" "$work/training:/training:ro" -- \
  env LD_LIBRARY_PATH=/training/softgpu SEQPOINT_DIR=/run/seqpoint SEQPOINT_LIBRARY=/seqpoint/libseqpoint_inject.so \
  CUDA_INJECTION64_PATH=/seqpoint/libseqpoint_inject.so NVTX_INJECTION64_PATH=/seqpoint/libseqpoint_inject.so \
  SEQPOINT_JOB=train-bert SEQPOINT_RUN_ID=tried \
  /training/seqpoint_workload --model gnmt --hidden 64 --layers 2 --vocabulary 256 --batch 8 --max-iterations 400 --quiet

say "the hub's answer, to a client in a container"
for _ in $(seq 50); do
  in_image seqpoint-node 1000 "$work/tls:/etc/seqpoint-tls:ro" -- seqpoint --server localhost:17443 --ca /etc/seqpoint-tls/ca.crt \
    --cert /etc/seqpoint-tls/node.crt --key /etc/seqpoint-tls/node.key jobs >"$work/jobs" 2>&1 || true
  grep -q 'train-bert .* ended' "$work/jobs" && break
  sleep 0.2
done
cat "$work/jobs"
grep -Eq 'train-bert +tried +ended .* 400 ' "$work/jobs" || { cat "$work/node.log"; say "FAILED: no job of 400 iterations"; exit 1; }
ours images
say "all passed"
