#!/bin/sh
# Builds a release into dist/VERSION: for each system an archive with the binary, its bill of materials, and the sums of
# all; where buildah is installed, images of Linux, too. Vets the code for Linux and macOS, compiles all of it for Windows,
# and starts the binary of this machine.
#
#   scripts/release.sh [VERSION]      by default what git calls this commit
#
# RELEASE_TARGETS names others than all, as in "linux/amd64 windows/arm64". Needs GNU tar, as on Linux. The same commit
# and toolchain give the same binaries and archives.
set -eu
cd "$(dirname "$0")/.."
umask 022

GO=${GO:-go}
version=${1:-$(git describe --tags --always --dirty)}
targets=${RELEASE_TARGETS:-linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64}
out=dist/$version
case "$version" in
*[!A-Za-z0-9.+_-]* | "" | -* | .*) echo "release: \"$version\" is no version; write it as in v0.1.0" >&2; exit 2 ;;
*-dirty) echo "release: the tree has changes that are not committed: this is for trying only" >&2 ;;
esac
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct)}"
rm -rf "$out"
mkdir -p "$out"
export CGO_ENABLED=0 GOFLAGS="-trimpath ${GOFLAGS:-}" # of go vet, too: what was compiled for it is used again

for target in $targets; do
  export GOOS="${target%/*}" GOARCH="${target#*/}"
  name=muster_${version}_${GOOS}_$GOARCH
  suffix=
  [ "$GOOS" != windows ] || suffix=.exe
  mkdir "$out/$name"
  # Time zones are in the binary: an empty image and Windows have none.
  $GO build -tags timetzdata -ldflags "-s -w -X main.version=$version" -o "$out/$name/muster$suffix" ./cmd/muster
  # All that users can import compiles everywhere. The tests are for Unix, and vet reads them, too.
  if [ "$GOOS" = windows ]; then $GO build ./...; else $GO vet ./...; fi
  (unset GOOS GOARCH; $GO run github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0 bin -json -std -noserial -notimestamp \
    -version "$version" -output "$out/$name.sbom.json" "$out/$name/muster$suffix")
  cp -R LICENSE README.md CHANGELOG.md muster.example.yaml deploy "$out/$name"
  tar --directory "$out" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --create "$name" |
    gzip --no-name -9 >"$out/$name.tar.gz"
  echo "release: built and vetted $target" >&2
done
unset GOOS GOARCH

here=$out/muster_${version}_$($GO env GOOS)_$($GO env GOARCH)
if [ -d "$here" ]; then
  said=$("$here/muster" --version)
  [ "$said" = "muster version $version" ] || { echo "release: the binary says \"$said\", want version $version" >&2; exit 1; }
  echo "release: $said starts" >&2
fi

# The image is the last stage of the Dockerfile, with the binary of the archive.
if command -v buildah >/dev/null; then
  for target in $targets; do
    case "$target" in linux/*) ;; *) continue ;; esac
    arch=${target#*/}
    build=$out/image
    mkdir -p "$build/etc/ssl/certs" "$build/out/data" "$build/out/tmp"
    cp /etc/ssl/certs/ca-certificates.crt "$build/etc/ssl/certs/"
    cp "$out/muster_${version}_linux_$arch/muster" "$build/out/"
    sed -n '/^FROM scratch$/,$p' Dockerfile >"$build/Dockerfile"
    buildah build --quiet --isolation chroot --arch "$arch" --timestamp "$SOURCE_DATE_EPOCH" --format docker \
      --build-context "build=$build" --file "$build/Dockerfile" --tag "muster:$version-$arch" "$build" >/dev/null
    buildah push --quiet "muster:$version-$arch" "docker-archive:$out/muster_${version}_image_$arch.tar:muster:$version"
    rm -rf "$build"
    echo "release: built the image for linux/$arch" >&2
  done
else
  echo "release: NO image was built: there is no buildah" >&2
fi

for target in $targets; do rm -r "$out/muster_${version}_${target%/*}_${target#*/}"; done
(cd "$out" && sha256sum -- *) >"$out.sums" && mv "$out.sums" "$out/SHA256SUMS"
echo "release: $out" >&2
