package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/urfave/cli/v2"
)

// version is set by the linker of a release. Without it, it is the version of the
// module that go install has built.
var version string

// build describes the source of the program.
type build struct {
	Version  string `json:"version"`            // of a release, or "dev"
	Revision string `json:"revision,omitempty"` // of the source
	Time     string `json:"time,omitempty"`     // of the revision
	Modified bool   `json:"modified,omitempty"` // since the revision
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func thisBuild() build {
	b := build{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	b.from(info)
	return b
}

// from reads the build information of the Go command.
func (b *build) from(info *debug.BuildInfo) {
	if v := info.Main.Version; b.Version == "" && v != "(devel)" {
		b.Version = v
	}
	if b.Version == "" {
		b.Version = "dev"
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
}

func versionCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:  "version",
		Usage: "print the version and build information",
		Description: `    muster version
    muster version --json`,
		Flags: []cli.Flag{jsonFlag()},
		Action: func(c *cli.Context) error {
			if err := arguments(c, 0, 0); err != nil {
				return err
			}
			b := thisBuild()
			if c.Bool("json") {
				return printJSON(env.stdout, b)
			}
			fmt.Fprintf(env.stdout, "muster %s\n", b.Version)
			if b.Revision != "" {
				modified := ""
				if b.Modified {
					modified = ", modified since"
				}
				fmt.Fprintf(env.stdout, "revision %s of %s%s\n", b.Revision, b.Time, modified)
			}
			_, err := fmt.Fprintf(env.stdout, "%s, %s\n", b.Go, b.Platform)
			return err
		},
	}
}
