package main

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

func TestBillNamesModulesAndToolchain(t *testing.T) {
	t.Parallel()
	info := &debug.BuildInfo{
		GoVersion: "go1.26.8", Main: debug.Module{Path: "muster", Version: "(devel)"},
		Deps: []*debug.Module{
			{Path: "example.org/a", Version: "v1.2.0"},
			{Path: "example.org/b", Version: "v0.1.0", Replace: &debug.Module{Path: "example.org/fork", Version: "v0.1.1"}},
		},
	}
	bom := bill("v0.1.0", []byte("a binary"), info)
	main := bom.Metadata.Component
	if main.Version != "v0.1.0" || (*main.Hashes)[0].Value != "a31362f60e9c65899145b6d69e92ceb0ae73fdc3a44f91dd654c9301548c4f5f" {
		t.Errorf("got the version %s and the hash %s, want v0.1.0 and that of its bytes", main.Version, (*main.Hashes)[0].Value)
	}
	var urls []string
	for _, c := range *bom.Components {
		urls = append(urls, c.PackageURL)
	}
	want := []string{"pkg:golang/std@1.26.8", "pkg:golang/example.org/a@v1.2.0", "pkg:golang/example.org/fork@v0.1.1"}
	if !slices.Equal(urls, want) || !slices.Equal(*(*bom.Dependencies)[0].Dependencies, want) {
		t.Errorf("got %q, needed %q, want %q", urls, *(*bom.Dependencies)[0].Dependencies, want)
	}
}

// The test's own binary has modules, as every binary of this module.
func TestBillIsTheSameForTheSameBinary(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "binary")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	var bills []string
	for range 2 {
		if err := write("v0.1.0", path); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path + ".sbom.json")
		if err != nil {
			t.Fatal(err)
		}
		bills = append(bills, string(text))
	}
	if bills[0] != bills[1] || !strings.Contains(bills[0], "pkg:golang/github.com/CycloneDX/cyclonedx-go@v0.12.0") {
		t.Errorf("got\n%s\nand\n%s", bills[0], bills[1])
	}
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := write("v0.1.0", path); err == nil {
		t.Error("a script has a bill")
	}
}
