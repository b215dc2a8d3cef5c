#!/usr/bin/env bash
# Runs tools/test.sh on Debian 13: makes a Debian 13 root, copies this tree into it and runs the
# script there. Works from any Debian or Ubuntu.
#
#   tools/check-debian13.sh [<root folder>]     default build/debian13-root; reused when it is there
#
# Needs root (chroot, mount), debootstrap and git, about 2 GB of disk, and a Debian mirror: MIRROR
# from the environment, else the one that this machine's apt uses, else debootstrap's default.
set -euo pipefail
cd "$(dirname "$(dirname "$(readlink -f "$0")")")"

fail() {
  echo "check-debian13: $1" >&2
  exit 1
}

if [[ $(id -u) != 0 ]]; then fail "needs root, for chroot and mount: run it with sudo"; fi
for program in debootstrap git unshare; do
  command -v "$program" > /dev/null || fail "needs $program: apt-get install debootstrap git"
done
git rev-parse > /dev/null || fail "needs a git checkout, to know which files to copy"

root=$(readlink -m "${1:-build/debian13-root}")
if [[ -e $root/debootstrap || ! -e $root/etc/debian_version ]]; then
  # Not there, or left half made: debootstrap deletes its own folder last.
  if [[ ! -e $root/debootstrap && -n $(ls -A "$root" 2> /dev/null) ]]; then
    fail "$root holds something else; give an empty folder"
  fi
  mirror=${MIRROR:-}
  if [[ -z $mirror ]] && command -v apt-get > /dev/null; then
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' \
      'Origin: Debian' 'Label: Debian' | sed -n 1p)
  fi
  debootstrap --variant=minbase --include=ca-certificates trixie "$root" ${mirror:+"$mirror"} ||
    fail "debootstrap could not make a root in $root; its own words are above"
fi
if [[ $(cat "$root/etc/debian_version") != 13* ]]; then
  fail "$root is Debian $(cat "$root/etc/debian_version"), not 13; give another folder"
fi

# The files of the tree as they are now, committed or not; build folders in the copy stay, so that
# a second run builds only what changed.
copy=$root/engine
mkdir -p "$copy"
find "$copy" -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf {} +
git ls-files -z --cached --others --exclude-standard |
  tar --create --null --files-from=- --ignore-failed-read | tar --extract --directory="$copy"
cp --remove-destination /etc/resolv.conf "$root/etc/resolv.conf"

# The mounts live in a namespace of their own and go with it. /proc is for the leak checker, /dev for
# the test of the progress bar, which needs a pseudo-terminal.
unshare --mount --pid --fork --kill-child bash -euc '
  mount -t proc proc "$1/proc"
  mount --rbind /dev "$1/dev"
  exec chroot "$1" env HOME=/root LC_ALL=C.UTF-8 \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin /engine/tools/test.sh
' bash "$root" || fail "tools/test.sh failed on Debian 13; the reason is above"
