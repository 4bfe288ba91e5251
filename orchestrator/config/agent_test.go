package config

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"muster/internal/testutil"
)

func TestAgentsFromFileAndEnvironment(t *testing.T) {
	t.Parallel()
	file := write(t, `
agents:
  static:
    - {role: creator, url: "http://one:8001", capacity: 3}
    - name: both
      roles: [creator, validator]
      url: https://two.example
      key: validator
`)
	env := []string{"CREATOR_AGENT_URL=http://creator:8001", "VALIDATOR_AGENT_URL=https://two.example"}
	l := read(t, Sources{File: file, Environ: env})
	want := []Agent{
		{Role: "creator", URL: "http://one:8001", Capacity: 3},
		{Name: "both", Roles: []string{"creator", "validator"}, URL: "https://two.example", Key: "validator"},
		{Name: "creator", Role: "creator", URL: "http://creator:8001"}, // the validator exists
	}
	if !reflect.DeepEqual(l.Agents.Static, want) {
		t.Errorf("got %+v\nwant %+v", l.Agents.Static, want)
	}

	// A child process inherits the variables and receives the settings.
	child := read(t, Sources{Environ: append(env, l.Environ("")...)})
	if !reflect.DeepEqual(child.Agents.Static, want) {
		t.Errorf("a child has %+v\nwant %+v", child.Agents.Static, want)
	}
	first := want[0]
	if first.NameOr() != "one:8001" || first.CapacityOr() != 3 || want[1].CapacityOr() != 1 || len(want[1].AllRoles()) != 2 {
		t.Errorf("name %s, capacities %d and %d, roles %v", first.NameOr(), first.CapacityOr(), want[1].CapacityOr(), want[1].AllRoles())
	}
	if _, err := Load(Sources{File: example, Environ: []string{"CREATOR_AGENT_URL=creator"}}); err == nil || !strings.Contains(err.Error(), "CREATOR_AGENT_URL") {
		t.Errorf("CREATOR_AGENT_URL without a scheme: got %v, want an error with its name", err)
	}
}

func TestGivenSettings(t *testing.T) {
	t.Parallel()
	l := read(t, Sources{File: write(t, "api: {listen: 127.0.0.1:8000}\n")})
	if !l.IsSet("api.listen") || l.IsSet("api.enabled") {
		t.Errorf("api.listen given: %v, want true; api.enabled given: %v, want false", l.IsSet("api.listen"), l.IsSet("api.enabled"))
	}
}

func TestSecretsOfAgentsAreMasked(t *testing.T) {
	t.Parallel()
	const secret = "MDEyMzQ1Njc4OWFiY2RlZg=="
	list := `[{"role":"creator","url":"http://creator:8001","secret":"` + secret + `"}]`
	file := filepath.Join(t.TempDir(), "agents")
	testutil.Ok(t, os.WriteFile(file, []byte(list), 0o600))
	for _, from := range []string{"MUSTER_AGENTS__STATIC=" + list, "MUSTER_AGENTS__STATIC_FILE=" + file} {
		l := testutil.Must(Load(Sources{Environ: []string{from}}))(t)
		if len(l.Agents.Static) != 1 || l.Agents.Static[0].Secret != secret {
			t.Errorf("got %d agents, want one with its secret", len(l.Agents.Static))
		}
		for _, s := range l.Settings() {
			if strings.Contains(fmt.Sprint(s.Value), secret) {
				t.Errorf("%s shows the secret", s.Path)
			}
		}
	}
	for _, bad := range []string{"short", "not base64 at all!", "MTIz"} {
		_, err := Load(Sources{Environ: []string{`MUSTER_AGENTS__STATIC=[{"role":"creator","url":"http://creator:8001","secret":"` + bad + `"}]`}})
		if err == nil || !strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), bad) {
			t.Errorf("%s: got %v, want an error without the secret", bad, err)
		}
	}
}
