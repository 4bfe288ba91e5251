#!/bin/sh
# Prints the path of a Chromium for the tests of the web pages:
#
#   in MUSTER_TEST_BROWSER or on the path   that one
#   --install, root on Debian               apt-get install
#   else                                    nothing, and the reason on standard error; exit 1
set -eu

for found in "${MUSTER_TEST_BROWSER:-}" chromium chromium-browser google-chrome; do
  case $found in '' | off) continue ;; esac
  if path=$(command -v "$found"); then
    echo "$path"
    exit 0
  fi
done

if [ "${1:-}" != --install ] || [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "browser.sh: no chromium; install it, or set MUSTER_TEST_BROWSER" >&2
  exit 1
fi
{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends chromium fonts-dejavu-core; } >&2
command -v chromium
