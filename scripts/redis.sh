#!/bin/sh
# Prints the path of a redis-server for the tests:
#
#   in MUSTER_TEST_REDIS_SERVER, on the path or unpacked before   that one
#   --install, on Debian                                          its package, unpacked under the cache directory
#   else                                                          nothing, and the reason on standard error; exit 1
set -eu

cache=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/muster/redis
say() { echo "redis.sh: $*" >&2; }

for found in "${MUSTER_TEST_REDIS_SERVER:-}" redis-server "$cache/usr/bin/redis-server"; do
  case $found in '' | off) continue ;; esac
  if path=$(command -v "$found") && "$path" --version >/dev/null 2>&1; then
    echo "$path"
    exit 0
  fi
done

if [ "${1:-}" != --install ]; then
  say "no redis-server; install Redis 7, set MUSTER_TEST_REDIS_SERVER, or run scripts/redis.sh --install"
  exit 1
fi
if ! command -v apt-get >/dev/null; then
  say "no apt-get; install Redis 7, or set MUSTER_TEST_REDIS_SERVER"
  exit 1
fi
[ "$(id -u)" != 0 ] || apt-get update -qq >&2

say "unpacking Debian's redis-server under $cache"
mkdir -p "$cache"
cd "$cache"
# Its libraries are unpacked too; dpkg does not need to know which ones the machine already has.
for package in redis-tools redis-server liblzf1 libjemalloc2 liblua5.1-0 lua-cjson lua-bitop libatomic1 libhiredis0.14 libsystemd0; do
  apt-get download -qq "$package" >&2 2>/dev/null || continue
done
for deb in *.deb; do
  [ -e "$deb" ] || { say "apt-get could not download the package"; exit 1; }
  dpkg -x "$deb" . && rm -f "$deb"
done
libraries=$(find "$cache" -name '*.so*' -exec dirname {} \; | sort -u | paste -sd: -)
# redis-server is a link to redis-check-rdb, which depends on the name of its command.
real=$cache/usr/bin/redis-server
[ -e "$real" ] || { say "the package contains no redis-server"; exit 1; }
if ! "$real" --version >/dev/null 2>&1; then
  mv "$real" "$real.bin" 2>/dev/null || true
  target=$(readlink "$real.bin" || true)
  [ -z "$target" ] || ln -sf "$(basename "$target")" "$real.bin"
  printf '#!/bin/bash\nLD_LIBRARY_PATH=%s exec -a redis-server %s.bin "$@"\n' "$libraries" "$real" >"$real"
  chmod +x "$real"
fi
cli=$cache/usr/bin/redis-cli
if [ -e "$cli" ] && ! "$cli" --version >/dev/null 2>&1; then
  mv "$cli" "$cli.bin"
  printf '#!/bin/bash\nLD_LIBRARY_PATH=%s exec %s.bin "$@"\n' "$libraries" "$cli" >"$cli"
  chmod +x "$cli"
fi
"$real" --version >/dev/null 2>&1 || { say "the unpacked redis-server does not run here"; exit 1; }
echo "$real"
