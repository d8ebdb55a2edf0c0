#!/usr/bin/env bash
# Installs the Debian packages into a bare Debian 12 (mmdebstrap's minbase) as a new user would, gets
# an answer there, upgrades, removes and purges. Needs mmdebstrap, root and Debian's mirror.
#   tests/deploy/try_debian_packages.sh FOLDER_OF_PACKAGES BUILD
# Exit status 77: skipped, with the reason.
set -euo pipefail
packages=$(realpath "$1")
build=$(realpath "$2")
say() { printf '%s\n' "$*" >&2; }
skip() { say "skipped: $*"; exit 77; }
command -v mmdebstrap >/dev/null || skip "mmdebstrap is not there; apt-get install mmdebstrap"
[ "$(id -u)" -eq 0 ] || skip "only root can make a file system with other users in it"
[ -x "$build/bin/seqpoint_workload" ] || skip "there is no $build/bin/seqpoint_workload: it needs nvcc"

work=$(mktemp -d --tmpdir seqpoint-try.XXXXXX)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/root/packages" "$work/root/newer" "$work/root/softgpu"
cp "$packages"/*.deb "$work/root/packages"
# What stands for a training and for a GPU with its driver.
cp "$build/bin/seqpoint_workload" "$work/root/"
cp -rL "$build/softgpu/." "$work/root/softgpu"
# The same with the number of a later version, for the upgrade.
for package in "$work/root/packages"/seqpoint{,d}_*.deb; do
  dpkg-deb -R "$package" "$work/newer"
  sed -i -E 's/^(Version: .*)$/\1+1/; s/(seqpointd \(= [^)]*)\)/\1+1)/' "$work/newer/DEBIAN/control"
  dpkg-deb -b "$work/newer" "$work/root/newer" >/dev/null
  rm -rf "$work/newer"
done

cat > "$work/root/try.sh" <<'INSIDE'
set -eu
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
cd /root
daemon=
trap '[ -z "$daemon" ] || kill "$daemon" 2>/dev/null || true; umount -l /proc' EXIT
mount -t proc proc /proc  # mmdebstrap's cannot be written, and the injected library looks at its own there
step() { printf '\n== %s\n' "$*"; }
fail() { printf 'FAILED: %s\n' "$*"; exit 1; }
for program in seqpoint seqpointd python3 systemctl; do
  ! command -v $program >/dev/null || fail "$program is here already: this proves nothing"
done
apt-get update -qq
chmod 711 /root; chmod 755 seqpoint_workload; adduser --quiet --disabled-password --gecos '' trainer
cat > /usr/local/bin/train <<'TRAIN'
#!/bin/sh
export LD_LIBRARY_PATH=/root/softgpu
exec /root/seqpoint_workload --model gnmt --hidden 64 --layers 2 --vocabulary 256 --batch 8 --max-iterations 400 --quiet
TRAIN
chmod 755 /usr/local/bin/train

step "installing"
began=$(date +%s%N)
apt-get install -y -qq --no-install-recommends ./packages/seqpoint_*.deb ./packages/seqpointd_*.deb >install.log 2>&1 || { cat install.log; fail "apt-get"; }
installed=$(date +%s%N)
step "a user's first job, with the private daemon"
su trainer -c 'cd && seqpoint run --iterations 400 -- train && seqpoint jobs' >first.txt 2>&1 || { cat first.txt; fail "seqpoint run"; }
answered=$(date +%s%N)
cat first.txt
tail -n 1 first.txt | grep -Eq '^ *1 +train .* ended .* (399|400) ' || fail "no job of 400 iterations"
printf 'FIGURE installation %d ms, first answer after %d ms more\n' $(((installed-began)/1000000)) $(((answered-installed)/1000000))

step "the daemon as the unit starts it"
id seqpoint
start_daemon() {
  install -d -o seqpoint -g seqpoint -m 700 /run/seqpoint /var/lib/seqpointd
  setpriv --reuid=seqpoint --regid=seqpoint --clear-groups env SEQPOINTD_DIR=/run/seqpoint \
    SEQPOINTD_STORE=/var/lib/seqpointd/seqpoint.db HOME=/nonexistent \
    /usr/bin/seqpointd --config /etc/seqpoint/seqpointd.toml 2>daemon.log &
  daemon=$!
  for _ in $(seq 100); do [ -S /run/seqpoint/api.sock ] && return; sleep 0.1; done
  cat daemon.log; fail "the daemon did not start"
}
end_daemon() { kill "$daemon"; wait "$daemon" || { cat daemon.log; fail "the daemon ended with $?"; }; daemon=; }
echo 'allow-users = "trainer"' >>/etc/seqpoint/seqpointd.toml
start_daemon
su trainer -c 'cd && seqpoint run --job kept --run-id 1 --quiet -- train'
seqpoint --socket /run/seqpoint/api.sock jobs | grep -q kept || fail "no job in the daemon"
end_daemon
seqpointd --config /etc/seqpoint/hub.toml --check-config | grep -q '^accept-nodes = true' || fail "hub.toml"

step "upgrade"
echo '# a line of the site' >> /etc/seqpoint/seqpointd.toml
apt-get install -y -qq ./newer/seqpoint_*.deb ./newer/seqpointd_*.deb >upgrade.log 2>&1 || { cat upgrade.log; fail "upgrade"; }
dpkg-query -W -f '${Version}\n' seqpointd | grep -q '+1$' || fail "not upgraded"
grep -q '# a line of the site' /etc/seqpoint/seqpointd.toml || fail "the upgrade replaced the site's settings"
start_daemon
seqpoint project kept >kept.txt || { cat kept.txt; fail "the job is lost by the upgrade"; }
cat kept.txt
end_daemon

step "removal"
apt-get remove -y -qq seqpoint seqpointd >remove.log 2>&1 || { cat remove.log; fail "removal"; }
[ ! -e /usr/bin/seqpointd ] || fail "seqpointd is still there"
[ -f /var/lib/seqpointd/seqpoint.db ] || fail "removal took the store away"
[ -f /etc/seqpoint/seqpointd.toml ] || fail "removal took the settings away"

step "purge"
apt-get purge -y -qq seqpoint seqpointd >purge.log 2>&1 || { cat purge.log; fail "purge"; }
! grep -q 'dpkg: warning' purge.log || { cat purge.log; fail "purge warns"; }
[ ! -e /var/lib/seqpointd ] || fail "purge left the store"
[ ! -e /etc/seqpoint ] || fail "purge left the settings"
[ -f /home/trainer/.local/state/seqpoint/seqpoint.db ] || fail "purge took a user's own store away"
echo "FIGURE all passed"
INSIDE

say "a bare Debian 12, from Debian's mirror"
mmdebstrap --quiet --variant=minbase --format=null \
  --customize-hook="copy-in $work/root /" \
  --customize-hook='chroot "$1" sh /root/try.sh' bookworm
