#!/bin/sh
# Makes dist/site, the documentation as web pages, or says which Debian packages are missing and exits with 2.
set -eu
cd "$(dirname "$0")/.."

# Debian's packages are those of its own Python, which need not be the first on the path.
missing=
for python in ${PYTHON:-python3 /usr/bin/python3}; do
  missing=
  for need in sphinx:python3-sphinx myst_parser:python3-myst-parser furo:furo; do
    "$python" -c "import ${need%:*}" 2>/dev/null || missing="$missing ${need#*:}"
  done
  [ -n "$missing" ] || break
done
if [ -n "$missing" ]; then
  echo "docs: needed and not installed:$missing. On Debian: apt-get install$missing" >&2
  exit 2
fi
rm -rf dist/site
"$python" -m sphinx -W --keep-going -q -c scripts/docsite -d dist/.doctrees . dist/site
echo "dist/site/index.html"
