package main

import (
	"fmt"
	"runtime/debug"

	"github.com/urfave/cli/v2"
)

// version is set by the linker of a release. Without it, it is the version of the
// module that go install has built.
var version string

// versionOf returns the version of the program, or "dev".
func versionOf(linked string, module debug.Module) string {
	switch {
	case linked != "":
		return linked
	case module.Version != "" && module.Version != "(devel)":
		return module.Version
	}
	return "dev"
}

func thisVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return versionOf(version, info.Main)
}

func versionCommand(env environment) *cli.Command {
	return &cli.Command{
		Name: "version", Usage: "print the version",
		Description: "    muster version",
		Action: func(c *cli.Context) error {
			_, err := fmt.Fprintln(env.stdout, "muster version "+thisVersion())
			return err
		},
	}
}
