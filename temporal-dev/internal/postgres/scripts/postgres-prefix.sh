#!/usr/bin/env bash
# Unpacks PostgreSQL 17 with pgvector from Debian 13 into a private prefix: no root, nothing installed, system untouched.
# The programs get their own C library beside them, so they also run on an older Debian.
#
# usage: postgres-prefix.sh PREFIX        needs apt-get and dpkg; downloads about 40 MB
#
# All work happens in PREFIX.new-*, renamed to PREFIX at the very end: whoever finds PREFIX finds it complete.
set -euo pipefail

say() { echo "postgres: $*"; }
fail() { echo "$*" >&2; exit 1; }

prefix=$(realpath -m "$1")
case $(dpkg --print-architecture) in
  amd64) triplet=x86_64-linux-gnu loader=ld-linux-x86-64.so.2 ;;
  arm64) triplet=aarch64-linux-gnu loader=ld-linux-aarch64.so.1 ;;
  *) fail "Debian's $(dpkg --print-architecture) packages are not known to this script" ;;
esac

mkdir -p "$(dirname "$prefix")"
work=$(mktemp -d "$prefix.new-XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP
tree=$work/tree
mkdir -p "$tree" "$work"/{system,lists,cache/archives}/partial "$work/debs"
: >"$work/empty"
private=(-q "-oAPT::Sandbox::User=$(id -un)" "-oDir::Cache=$work/cache" -oAcquire::Retries=3 -oDpkg::Use-Pty=0)

# The mirror that this machine already uses for Debian's main archive. A new machine has no lists yet, so fetch them privately.
say "asking this machine's package sources where its Debian mirror is"
apt-get "${private[@]}" -oDir::State::Lists="$work/system" update >"$work/log" 2>&1 || true
mirror=$(apt-get "${private[@]}" -oDir::State::Lists="$work/system" indextargets --format '$(REPO_URI) $(ORIGIN)' 'Created-By: Packages' |
  awk '$2 == "Debian" && $1 !~ /security/ && !n++ {print $1}')
if [ -z "$mirror" ]; then
  tail -n 5 "$work/log" >&2
  fail "no Debian archive is configured here, or it cannot be reached"
fi
echo "deb $mirror trixie main" >"$work/sources.list"

trixie=("${private[@]}" "-oDir::Etc::sourcelist=$work/sources.list" -oDir::Etc::sourceparts=/dev/null
  "-oDir::State::Lists=$work/lists" "-oDir::State::status=$work/empty")
say "reading Debian 13's package list"
apt-get "${trixie[@]}" update >"$work/log" 2>&1 || { tail -n 5 "$work/log" >&2; fail "Debian 13's package list cannot be read"; }

say "downloading PostgreSQL 17, pgvector and their libraries (about 40 MB)"
cd "$work/debs"
apt-get "${trixie[@]}" download postgresql-17 postgresql-client-17 postgresql-17-pgvector patchelf \
  libpq5 libc6 libicu76 libxml2 libssl3t64 libldap2 libgssapi-krb5-2 libkrb5-3 libk5crypto3 libcom-err2 libkrb5support0 \
  libkeyutils1 libzstd1 liblz4-1 zlib1g libsystemd0 libpam0g libaudit1 libcap-ng0 libxslt1.1 libuuid1 libreadline8t64 \
  libtinfo6 libsasl2-2 liblzma5 libstdc++6 libgcc-s1 libcap2 libselinux1 libpcre2-8-0 libgcrypt20 libgpg-error0 libbsd0 \
  libmd0 libcrypt1 libnuma1 >"$work/log" 2>&1 || { tail -n 5 "$work/log" >&2; fail "a package cannot be downloaded"; }

say "unpacking"
for deb in *.deb; do dpkg -x "$deb" "$tree"; done

# The unpacked patchelf runs on the unpacked loader and libraries, so that the system needs neither.
run() { "$tree/usr/lib/$triplet/$loader" --library-path "$tree/usr/lib/$triplet" "$@"; }
bin=usr/lib/postgresql/17/bin
for program in postgres initdb pg_ctl psql pg_isready pg_dump pg_restore createdb dropdb pg_controldata pgbench; do
  # An interpreter must be an absolute path, so it names the final place; libraries are found relative to the program.
  # RPATH and not RUNPATH (--force-rpath), because it also serves the libraries' own dependencies.
  run "$tree/usr/bin/patchelf" --set-interpreter "$prefix/usr/lib/$triplet/$loader" \
    --force-rpath --set-rpath "\$ORIGIN/../../../$triplet" "$tree/$bin/$program"
done
version=$(run "$tree/$bin/postgres" --version)
[ -e "$tree/usr/share/postgresql/17/extension/vector.control" ] || fail "the pgvector package has no vector.control"

rm -rf "$tree"/usr/share/{doc,man,locale,lintian} "$tree"/{etc,var}
chmod -R a+rX "$tree"
mv -T "$tree" "$prefix" 2>/dev/null || [ -x "$prefix/$bin/postgres" ] || fail "$prefix cannot be created"
say "$version is ready in $prefix"
