#!/bin/sh
# Prints the path of a redis-server for the tests, fetching one when there is none:
#
#   on the path or in MUSTER_TEST_REDIS_SERVER   that one
#   root on Debian                               apt-get install
#   Debian, not root                             the package unpacked under the cache folder
#   else                                         nothing, and the reason on standard error; exit 1
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

if ! command -v apt-get >/dev/null; then
  say "no redis-server, and no apt-get to get it with; install Redis 7, or set MUSTER_TEST_REDIS_SERVER"
  exit 1
fi

if [ "$(id -u)" = 0 ]; then
  say "installing redis-server with apt-get"
  # The service that the package brings is not wanted: the tests start their own.
  policy=/usr/sbin/policy-rc.d
  if [ ! -e $policy ]; then
    printf '#!/bin/sh\nexit 101\n' >$policy && chmod +x $policy
    trap 'rm -f $policy' EXIT
  fi
  if { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends redis-server; } >&2 &&
    path=$(command -v redis-server); then
    echo "$path"
    exit 0
  fi
  say "apt-get could not install it; unpacking the package instead"
fi

say "unpacking Debian's redis-server under $cache"
mkdir -p "$cache"
cd "$cache"
# Its libraries are unpacked too; which of them the machine has already, dpkg need not know.
for package in redis-tools redis-server liblzf1 libjemalloc2 liblua5.1-0 lua-cjson lua-bitop libatomic1 libhiredis0.14 libsystemd0; do
  apt-get download -qq "$package" >&2 2>/dev/null || continue
done
for deb in *.deb; do
  [ -e "$deb" ] || { say "apt-get could not download the package"; exit 1; }
  dpkg -x "$deb" . && rm -f "$deb"
done
libraries=$(find "$cache" -name '*.so*' -exec dirname {} \; | sort -u | paste -sd: -)
# redis-server is a link to redis-check-rdb, which looks at the name it is called by.
real=$cache/usr/bin/redis-server
[ -e "$real" ] || { say "the package holds no redis-server"; exit 1; }
if ! "$real" --version >/dev/null 2>&1; then
  mv "$real" "$real.bin" 2>/dev/null || true
  target=$(readlink "$real.bin" || true)
  [ -z "$target" ] || ln -sf "$(basename "$target")" "$real.bin"
  printf '#!/bin/bash\nLD_LIBRARY_PATH=%s exec -a redis-server %s.bin "$@"\n' "$libraries" "$real" >"$real"
  chmod +x "$real"
fi
"$real" --version >/dev/null 2>&1 || { say "the unpacked redis-server does not run here"; exit 1; }
echo "$real"
