package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/urfave/cli/v2"

	"muster/orchestrator/config"
)

// deployDir contains systemd units, Kubernetes manifests, alerts and a dashboard.
var deployDir = filepath.Join("..", "..", "deploy")

// rootFile reads a file below the root of the module.
func rootFile(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{"..", ".."}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// knownCommand returns an error unless the arguments are a command of muster with flags that it has.
func knownCommand(args []string) error {
	app := newApp(environment{})
	list, flags, named := app.Commands, flagNames(app.Flags), false
	for _, arg := range args {
		if name, ok := strings.CutPrefix(arg, "--"); ok {
			if name, _, _ = strings.Cut(name, "="); !slices.Contains(flags, name) {
				return fmt.Errorf("%q: unknown flag --%s", args, name)
			}
			continue
		}
		i := slices.IndexFunc(list, func(c *cli.Command) bool { return c.HasName(arg) })
		if i < 0 {
			if !named {
				return fmt.Errorf("%q: unknown command %s", args, arg)
			}
			continue // the value of a flag
		}
		flags, list, named = append(flags, flagNames(list[i].Flags)...), list[i].Subcommands, true
	}
	if !named {
		return fmt.Errorf("%q names no command", args)
	}
	return nil
}

func TestDeployedCommandsAreChecked(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"start": "", "worker --name a": "", "worker --metrics-listen=:1": "",
		"strat": "unknown command strat", "worker --nmae a": "unknown flag --nmae", "--config a": "unknown command a",
	} {
		if got := fmt.Sprint(knownCommand(strings.Fields(args))); want == "" && got != "<nil>" || !strings.Contains(got, want) {
			t.Errorf("%s: got %s, want %q", args, got, want)
		}
	}
}

// unit is a unit of systemd: the values of each directive of a section, as in "Service.ExecStart".
type unit map[string][]string

func readUnit(t *testing.T, name string) unit {
	t.Helper()
	u, section := unit{}, ""
	for line := range strings.Lines(rootFile(t, "deploy", "systemd", name)) {
		line = strings.TrimSpace(line)
		if head, ok := strings.CutPrefix(line, "["); ok {
			section = strings.TrimSuffix(head, "]")
		} else if key, value, ok := strings.Cut(line, "="); ok && !strings.HasPrefix(line, "#") {
			u[section+"."+key] = append(u[section+"."+key], value)
		}
	}
	return u
}

func TestSystemdUnitsRunWhatThereIs(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"muster.service", "muster-worker@.service"} {
		u := readUnit(t, name)
		start := strings.Fields(strings.Join(u["Service.ExecStart"], " "))
		if len(start) < 2 || start[0] != "/usr/local/bin/muster" {
			t.Errorf("%s starts %q, want muster", name, start)
			continue
		}
		if err := knownCommand(start[1:]); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var environ []string
		for _, one := range u["Service.Environment"] {
			environ = append(environ, strings.ReplaceAll(one, "%i", "1"))
		}
		loaded, err := config.Load(config.Sources{File: filepath.Join("..", "..", "muster.example.yaml"), Environ: environ})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if dir := "/var/lib/" + strings.Join(u["Service.StateDirectory"], ""); loaded.DataDir != dir {
			t.Errorf("%s: the data folder is %s, want the state directory %s", name, loaded.DataDir, dir)
		}
		if stop, err := time.ParseDuration(strings.Join(u["Service.TimeoutStopSec"], "")); err != nil || stop <= loaded.Shutdown.Drain {
			t.Errorf("%s may stop for %s (%v), want more than shutdown.drain, %s", name, stop, err, loaded.Shutdown.Drain)
		}
		if got := u["Service.RestartPreventExitStatus"]; !slices.Contains(got, "2") {
			t.Errorf("%s: got RestartPreventExitStatus %q, want 2, for wrong settings", name, got)
		}
	}
	// Redis and worker processes are stopped by Muster, in its order.
	if got := readUnit(t, "muster.service")["Service.KillMode"]; !slices.Equal(got, []string{"mixed"}) {
		t.Errorf("muster.service has the kill mode %q, want mixed", got)
	}
}

func TestSystemdTakesTheUnits(t *testing.T) {
	t.Parallel()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("NOT CHECKED: systemd-analyze not found")
	}
	dir := t.TempDir()
	var paths []string
	for _, name := range []string{"muster.service", "muster-worker@.service"} {
		// The started program must exist.
		text := strings.ReplaceAll(rootFile(t, "deploy", "systemd", name), "/usr/local/bin/muster", "/bin/true")
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	out, err := exec.CommandContext(t.Context(), analyze, append([]string{"verify", "--man=no"}, paths...)...).CombinedOutput()
	if err != nil || len(bytes.TrimSpace(out)) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}
