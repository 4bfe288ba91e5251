// Command sbom writes the software bill of materials of Go binaries, as CycloneDX 1.6: the modules and the toolchain
// that each was built from, as the binary itself says.
//
//	go run -C scripts/sbom . VERSION BINARY…
//
// It writes BINARY.sbom.json beside each, the same bytes for the same binary.
package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "sbom: name the version and the binaries")
		os.Exit(2)
	}
	for _, path := range os.Args[2:] {
		if err := write(os.Args[1], path); err != nil {
			fmt.Fprintf(os.Stderr, "sbom: %s: %v\n", path, err)
			os.Exit(1)
		}
	}
}

// write writes the bill of the binary at path beside it. The binary does not say its version.
func write(version, path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	info, err := buildinfo.Read(bytes.NewReader(content))
	if err != nil {
		return err
	}
	if len(info.Deps) == 0 {
		return errors.New("it names no modules; build it from the module")
	}
	var out bytes.Buffer
	if err := cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bill(version, content, info), cdx.SpecVersion1_6); err != nil {
		return err
	}
	return os.WriteFile(path+".sbom.json", out.Bytes(), 0o644)
}

// bill returns what a binary was built from.
func bill(version string, content []byte, info *debug.BuildInfo) *cdx.BOM {
	sum := sha256.Sum256(content)
	main := component(cdx.ComponentTypeApplication, info.Main)
	main.Version = version
	main.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}}
	components := []cdx.Component{component(cdx.ComponentTypeLibrary, debug.Module{Path: "std", Version: strings.TrimPrefix(info.GoVersion, "go")})}
	needs := []string{components[0].BOMRef}
	for _, dep := range info.Deps {
		if dep.Replace != nil {
			dep = dep.Replace
		}
		c := component(cdx.ComponentTypeLibrary, *dep)
		components, needs = append(components, c), append(needs, c.BOMRef)
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Component: &main}
	bom.Components = &components
	bom.Dependencies = &[]cdx.Dependency{{Ref: main.BOMRef, Dependencies: &needs}}
	return bom
}

// component returns a module as a component, with its package URL.
func component(kind cdx.ComponentType, m debug.Module) cdx.Component {
	url := "pkg:golang/" + m.Path
	if m.Version != "" && m.Version != "(devel)" {
		url += "@" + m.Version
	}
	return cdx.Component{BOMRef: url, Type: kind, Name: m.Path, Version: m.Version, PackageURL: url}
}
