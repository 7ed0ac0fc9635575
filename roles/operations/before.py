"""What a node was before klaster touched it, kept on the node itself, so that it can be given back as it was found."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

BEFORE = "/var/lib/klaster/before"
"""files/… originals, `made` paths that were not there, `parents` of them, `modes` of folders, `packages`, `accounts`.

`started` has the time of the first change: a file born later came with a package of ours and is no original. `late`
says that an older klaster without this record had been here before.
"""

OPEN = (
    f"B={BEFORE}; mkdir -p $B && chmod 700 $B; "
    "[ -e $B/started ] || { [ ! -d /etc/klaster ] || : > $B/late; : > $B/started; }"
)
REMEMBER = """remember() {
  grep -qxsF -- "$1" $B/made && return 0
  if [ -f "$B/files$1" ] || [ -L "$B/files$1" ]; then return 0; fi
  if [ ! -e "$1" ] && [ ! -L "$1" ]; then
    printf '%s\\n' "$1" >> $B/made
    p=${1%/*}; while [ -n "$p" ] && [ ! -e "$p" ]; do printf '%s\\n' "$p" >> $B/parents; p=${p%/*}; done
    return 0
  fi
  if [ -d "$1" ]; then
    grep -qsF -- " $1" $B/modes || stat -c '%a %U %G %n' -- "$1" >> $B/modes
    return 0
  fi
  born=$(stat -c %W -- "$1"); [ "$born" -gt 0 ] || born=$(stat -c %Z -- "$1")
  if [ "$born" -ge "$(stat -c %Y $B/started)" ]; then printf '%s\\n' "$1" >> $B/made; return 0; fi
  mkdir -p "$B/files${1%/*}" && cp -a -- "$1" "$B/files$1"
}"""
_NAMES = "dpkg-query -W -f='${db:Status-Status} ${Package}\\n' | sed -n 's/^installed //p' | sort"


def remember(paths: Sequence[str]) -> list[str]:
    """Lines of a script that is about to write or remove `paths`."""
    return [OPEN, REMEMBER, *(f"remember {shlex.quote(path)}" for path in paths)]


def recorded(install: str) -> str:
    """A command that installs packages, with what it brought written down, also if a run before it died."""
    return (
        f"{OPEN}; [ -s $B/installing ] || {{ {_NAMES} > $B/installing.new && mv $B/installing.new $B/installing; }}; "
        f"{{ {install}; }}; s=$?; {_NAMES} | comm -13 $B/installing - >> $B/packages; "
        "[ $s != 0 ] || rm -f $B/installing; exit $s"
    )


def made_account(name: str) -> str:
    return f"{{ {OPEN}; echo {shlex.quote(name)} >> $B/accounts; }}"


# --- and back --------------------------------------------------------------------------------------------------------

_AUTOREMOVE = "-o APT::AutoRemove::RecommendsImportant=false -o APT::AutoRemove::SuggestsImportant=false"


def _packages_script() -> str:
    """Purge what came with us and nothing else needs; packages that a person's own ones need stay."""
    return f"""
gone=$(sort -u $B/packages 2>/dev/null | comm -12 - $B/now)
if [ -n "$gone" ]; then
  apt-mark -q unhold $gone >/dev/null 2>&1
  apt-mark -q auto $gone >/dev/null
  free=$(apt-get -s {_AUTOREMOVE} autoremove | sed -n 's/^Remv \\([^ ]*\\).*/\\1/p' | sort)
  printf '%s\\n' $gone | sort > $B/gone; printf '%s\\n' $free | comm -12 $B/gone - > $B/free
  [ ! -s $B/free ] || xargs env DEBIAN_FRONTEND=noninteractive SUDO_FORCE_REMOVE=yes \\
    apt-get -y -q -o DPkg::Lock::Timeout=300 purge < $B/free >$B/purge.log 2>&1 ||
    {{ tail -n 5 $B/purge.log >&2; exit 1; }}
fi"""


def give_back_script(keep: Sequence[str]) -> str:
    """Undo everything on this node, in an order that never cuts the way in; run again, it goes on. `keep`: data."""
    kept = " ".join(shlex.quote(path) for path in keep)
    return f"""set -u
B={BEFORE}
[ -d $B ] || {{ echo 'this node has no record of klaster (or has been given back)'; exit 0; }}
{_NAMES} > $B/now
units=$(sed -n 's#^/etc/systemd/system/\\([^/]*[.]\\(service\\|timer\\|path\\|socket\\)\\)$#\\1#p' $B/made 2>/dev/null)
[ -z "$units" ] || systemctl -q disable --now $units 2>/dev/null
systemctl stop slurmd slurmctld slurmdbd munge 2>/dev/null
nft delete table inet klaster 2>/dev/null
{_packages_script()}
ours() {{ for k in {kept}; do case $1/ in "$k"/*) return 1;; esac; done; return 0; }}
sort -ru $B/made 2>/dev/null | while read -r path; do
  case $path in {BEFORE}*|/var/lib/klaster) continue;; esac
  if [ -d "$path" ] && [ ! -L "$path" ]; then ours "$path" && rm -rf --one-file-system -- "$path"
  else ours "$path" && rm -f -- "$path"; fi
done
sort -ru $B/parents 2>/dev/null | while read -r path; do rmdir -- "$path" 2>/dev/null; done
[ ! -d $B/files ] || (cd $B/files && find . -type f -o -type l) | while read -r path; do
  path=${{path#.}}
  if [ -e $B/late ] && grep -qs klaster "$B/files$path"; then rm -f -- "$path"; continue; fi
  mkdir -p "${{path%/*}}" && cp -a --remove-destination -- "$B/files$path" "$path"
done
while read -r mode owner group path; do
  [ ! -d "$path" ] || {{ chown "$owner:$group" "$path"; chmod "$mode" "$path"; }}
done 2>/dev/null < $B/modes
systemctl daemon-reload
hostname -F /etc/hostname 2>/dev/null
[ ! -x /usr/sbin/pam-auth-update ] || DEBIAN_FRONTEND=noninteractive pam-auth-update --package 2>/dev/null
[ ! -x /usr/sbin/update-ca-certificates ] || update-ca-certificates --fresh >/dev/null 2>&1
sort -u $B/accounts 2>/dev/null | while read -r name; do
  pkill -KILL -u "$name" 2>/dev/null; userdel "$name" 2>/dev/null; groupdel "$name" 2>/dev/null
done
! systemctl is-active -q ssh || systemctl reload ssh
rm -rf /etc/klaster /etc/munge /etc/slurm /var/lib/slurm /var/log/slurm /usr/local/lib/klaster /var/lib/klaster
echo 'given back'"""
