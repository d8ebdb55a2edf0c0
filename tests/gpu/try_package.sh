#!/usr/bin/env bash
# Shows that the bundle runs where nothing of ours is installed: in a root file system that holds
# Debian's glibc, shell and coreutils and nothing else (no libstdc++, no Python, no CUDA), in
# namespaces of its own. The software GPU stands for the driver.
#   tests/gpu/try_package.sh [package/seqpoint]
set -euo pipefail
bundle=$(realpath "${1:-package/seqpoint}")
say() { printf '%s\n' "$*" >&2; }
[ -x "$bundle/bin/seqpoint" ] || { say "no bundle in $bundle: ./dev package makes one"; exit 2; }

if [ "${TRY_PACKAGE_INSIDE:-}" != yes ]; then
  # Root in a user namespace is enough, and all mounts end with it.
  exec env TRY_PACKAGE_INSIDE=yes unshare --user --map-root-user --mount --pid --fork --net "$0" "$bundle"
fi

tree=$(mktemp -d /tmp/seqpoint-tree-XXXXXX)
trap 'umount -R -l "$tree" 2>/dev/null || true; rmdir "$tree" 2>/dev/null || true' EXIT
mount -t tmpfs tree "$tree"
mkdir -p "$tree"/{usr/bin,usr/lib,usr/lib64,usr/sbin,proc,dev,tmp,root,opt,run,etc}
for folder in bin lib lib64 sbin; do ln -s "usr/$folder" "$tree/$folder"; done
# The base packages as they are installed here. /bin of the list is /usr/bin of a merged system.
dpkg -L libc6 libc-bin dash bash coreutils findutils grep libtinfo6 libselinux1 libpcre2-8-0 libacl1 \
  libattr1 libgmp10 | grep -E '/(bin|lib|lib64|sbin)/' | grep -v '/share/' | sort -u |
while read -r path; do
  [ -f "$path" ] || [ -L "$path" ] || continue
  [ -d "$path" ] && continue
  case $path in /usr/*) target=$tree$path ;; *) target=$tree/usr$path ;; esac
  mkdir -p "$(dirname "$target")"
  cp -P --preserve=mode "$path" "$target"
done
ln -sf dash "$tree/usr/bin/sh"
mount -t proc proc "$tree/proc"
for device in null zero random urandom; do touch "$tree/dev/$device"; mount --bind "/dev/$device" "$tree/dev/$device"; done
mkdir "$tree/opt/anywhere"
cp -r "$bundle" "$tree/opt/anywhere/seqpoint"
mkdir "$tree/opt/strangers"
for library in libz.so.1 libssl.so.3 libprotobuf.so.32; do
  echo 'not a library' > "$tree/opt/strangers/$library"  # as another package's folder would shadow ours
done

cat > "$tree/root/try.sh" <<'INSIDE'
set -eu
cd /root
b=/opt/anywhere/seqpoint
export HOME=/root XDG_RUNTIME_DIR=/root/run XDG_STATE_HOME=/root/state
mkdir -m 700 run state
for missing in libstdc++.so.6 libgrpc.so.29 libprotobuf.so.32 libcudart.so.13; do
  [ -z "$(find /usr -name "$missing")" ] || { echo "$missing is here: this proves nothing"; exit 1; }
done
# A stranger's libraries on the path, in front of the software GPU.
export LD_LIBRARY_PATH=/opt/strangers
$b/bin/seqpoint version
export LD_LIBRARY_PATH=/opt/strangers:$b/softgpu
$b/bin/seqpoint run --job tried --iterations 400 --quiet -- \
  $b/bin/seqpoint_workload --model gnmt --hidden 64 --layers 2 --vocabulary 256 --batch 8 --max-iterations 400 --quiet
$b/bin/seqpoint project tried
$b/bin/seqpoint seqpoints tried > seqpoints.txt
[ "$(wc -l < seqpoints.txt)" -gt 3 ] || { echo "no SeqPoints:"; cat seqpoints.txt; exit 1; }
[ -z "$(ls -d $b/share/seqpoint/python 2>/dev/null)" ] || echo "adapter: $(ls $b/share/seqpoint/python | tr '\n' ' ')"
unset LD_LIBRARY_PATH
$b/bin/seqpoint_demo --quiet
INSIDE
chroot "$tree" /usr/bin/bash /root/try.sh
say "the bundle runs in a file system of $(du -sh --exclude=opt --exclude=proc --exclude=dev "$tree" | cut -f1)B without any of our packages: $(find "$tree/opt/anywhere/seqpoint" -type f | wc -l) files, $(du -sh --apparent-size "$tree/opt/anywhere/seqpoint" | cut -f1)B"
