package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"muster/internal/testutil"
	"muster/orchestrator/config"
)

// rootFile reads a file below the root of the module.
func rootFile(t *testing.T, path ...string) string {
	t.Helper()
	text := testutil.Must(os.ReadFile(filepath.Join(append([]string{"..", ".."}, path...)...)))(t)
	return string(text)
}

// composed is a service of docker-compose.yml.
type composed struct {
	Environment    map[string]string
	Command, Ports []string
	Profiles       []string
	Networks       []string
	User, Build    string
	ReadOnly       bool     `yaml:"read_only"`
	CapDrop        []string `yaml:"cap_drop"`
	SecurityOpt    []string `yaml:"security_opt"`
}

func composeFile(t *testing.T) map[string]composed {
	t.Helper()
	var file struct{ Services map[string]composed }
	testutil.Ok(t, yaml.Unmarshal([]byte(rootFile(t, "docker-compose.yml")), &file))
	return file.Services
}

// pod is the pod of a manifest of Kubernetes.
type pod struct {
	Token           any `yaml:"automountServiceAccountToken"`
	SecurityContext struct {
		RunAsNonRoot bool `yaml:"runAsNonRoot"`
	} `yaml:"securityContext"`
	Containers []struct {
		Name, Image     string
		Args            []string
		Env             []struct{ Name, Value string }
		SecurityContext struct {
			AllowPrivilegeEscalation any  `yaml:"allowPrivilegeEscalation"`
			ReadOnlyRootFilesystem   bool `yaml:"readOnlyRootFilesystem"`
			Capabilities             struct{ Drop []string }
		} `yaml:"securityContext"`
	}
}

// pods returns the pods in the manifests of Kubernetes.
func pods(t *testing.T) map[string]pod {
	t.Helper()
	all := map[string]pod{}
	files, _ := filepath.Glob("../../deploy/kubernetes/*/*.yaml")
	for _, name := range files {
		text := testutil.Must(os.ReadFile(name))(t)
		for dec := yaml.NewDecoder(bytes.NewReader(text)); filepath.Base(name) != "muster.yaml"; {
			var m struct {
				Kind     string
				Metadata struct{ Name string }
				Spec     struct{ Template struct{ Spec pod } }
			}
			if err := dec.Decode(&m); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if len(m.Spec.Template.Spec.Containers) > 0 {
				all[m.Kind+" "+m.Metadata.Name] = m.Spec.Template.Spec
			}
		}
	}
	return all
}

// Each file that starts Muster names a command and settings that exist.
func TestDeploymentFilesLoad(t *testing.T) {
	t.Parallel()
	defaults := regexp.MustCompile(`\$\{\w+:-([^}]*)\}`)
	required := regexp.MustCompile(`\$\{\w+:\?[^}]*\}`)
	check := func(name, file string, command, environ []string) {
		t.Helper()
		if len(command) > 0 {
			if err := typable(newApp(environment{}), strings.Join(command, " ")); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		for i, e := range environ {
			e = required.ReplaceAllString(defaults.ReplaceAllString(e, "$1"), "a-key-of-32-or-more-characters-of-.env")
			if key, _, _ := strings.Cut(e, "="); strings.HasSuffix(key, "_FILE") {
				secret := filepath.Join(t.TempDir(), "secret")
				testutil.Ok(t, os.WriteFile(secret, []byte("redis://:a-key-of-thirty-two-characters@redis:6379/0\n"), 0o600))
				e = key + "=" + secret
			}
			environ[i] = e
		}
		if _, err := config.Load(config.Sources{File: file, Environ: environ}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	example := filepath.Join("..", "..", "muster.example.yaml")
	for _, name := range []string{"muster.service", "muster-worker@.service"} {
		text := rootFile(t, "deploy", "systemd", name)
		start := regexp.MustCompile(`(?m)^ExecStart=\S+ (.*)$`).FindStringSubmatch(text)
		var environ []string
		for _, m := range regexp.MustCompile(`(?m)^Environment=(.*)$`).FindAllStringSubmatch(text, -1) {
			environ = append(environ, strings.ReplaceAll(m[1], "%i", "1"))
		}
		if start == nil {
			t.Errorf("%s starts nothing", name)
			continue
		}
		check(name, example, strings.Fields(start[1]), environ)
	}
	for _, name := range []string{"orchestrator", "worker"} {
		s := composeFile(t)[name]
		var environ []string
		for key, value := range s.Environment {
			environ = append(environ, key+"="+value)
		}
		check("docker-compose.yml: "+name, example, s.Command, environ)
	}
	check("Dockerfile", example, nil, regexp.MustCompile(`MUSTER_\w+=\S+`).FindAllString(rootFile(t, "Dockerfile"), -1))
	for name, pod := range pods(t) {
		for _, c := range pod.Containers {
			var environ []string
			for _, e := range c.Env {
				if strings.HasPrefix(e.Name, "MUSTER_") && e.Name != "MUSTER_CONFIG" {
					environ = append(environ, e.Name+"="+e.Value)
				}
			}
			if c.Image == "muster" {
				check(name, filepath.Join("..", "..", "deploy", "kubernetes", "base", "muster.yaml"), c.Args, environ)
			}
		}
	}
	if analyze, err := exec.LookPath("systemd-analyze"); err == nil {
		dir := t.TempDir()
		for _, name := range []string{"muster.service", "muster-worker@.service"} {
			text := strings.ReplaceAll(rootFile(t, "deploy", "systemd", name), "/usr/local/bin/muster", "/bin/true") // it must exist
			testutil.Ok(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		}
		out, err := exec.CommandContext(t.Context(), analyze, "verify", "--man=no", dir+"/muster.service", dir+"/muster-worker@.service").CombinedOutput()
		if err != nil || len(bytes.TrimSpace(out)) > 0 {
			t.Errorf("systemd-analyze verify: %v\n%s", err, out)
		}
	}
}

// Containers have no rights, the API listens on this machine and needs a key, and agents do not reach Redis, whose password
// grants full access.
func TestContainersAreConfined(t *testing.T) {
	t.Parallel()
	for name, s := range composeFile(t) {
		agent := slices.Contains(s.Profiles, "agents")
		if s.User == "" && s.Build == "" || !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) || !slices.Equal(s.SecurityOpt, []string{"no-new-privileges:true"}) {
			t.Errorf("%s: got user %q, read_only %v, cap_drop %q, security_opt %q", name, s.User, s.ReadOnly, s.CapDrop, s.SecurityOpt)
		}
		if slices.Contains(s.Networks, "redis") == agent || agent && !strings.HasPrefix(s.Environment["MUSTER_KEY"], "${MUSTER_AGENT_KEY:-") {
			t.Errorf("%s: got networks %q and key %q, want no Redis and a separate key for agents", name, s.Networks, s.Environment["MUSTER_KEY"])
		}
	}
	o, redis := composeFile(t)["orchestrator"], composeFile(t)["redis"]
	if !slices.Equal(o.Ports, []string{"127.0.0.1:8000:8000"}) || !strings.HasPrefix(o.Environment["MUSTER_API__KEYS"], "${MUSTER_API_KEY:?") ||
		!strings.HasPrefix(o.Environment["CREATOR_AGENT_URL"], "${CREATOR_AGENT_URL:-") || !strings.HasPrefix(o.Environment["VALIDATOR_AGENT_URL"], "${VALIDATOR_AGENT_URL:-") {
		t.Errorf("orchestrator: got ports %q and environment %q", o.Ports, o.Environment)
	}
	if len(redis.Ports) > 0 || !slices.Equal(redis.Networks, []string{"redis"}) || !strings.Contains(strings.Join(redis.Command, " "), "requirepass $$REDIS_PASSWORD") {
		t.Errorf("redis: got ports %q, networks %q and command %q", redis.Ports, redis.Networks, redis.Command)
	}
	all := pods(t)
	for name, p := range all {
		for _, c := range p.Containers {
			s := c.SecurityContext
			if !p.SecurityContext.RunAsNonRoot || p.Token != false || s.AllowPrivilegeEscalation != false || !s.ReadOnlyRootFilesystem || !slices.Equal(s.Capabilities.Drop, []string{"ALL"}) {
				t.Errorf("%s: the container %s may do too much: %+v", name, c.Name, s)
			}
		}
	}
	if len(all) != 3 {
		t.Errorf("got %d pods, want orchestrator, workers and Redis", len(all))
	}
}

// Alerts, the dashboard and the scaling rule use metrics that exist; each alert has a section of the runbook and fires in a test.
func TestAlertsUseExistingMetrics(t *testing.T) {
	t.Parallel()
	metrics, runbook, fired := rootFile(t, "docs", "reference", "metrics.md"), rootFile(t, "docs", "how-to", "troubleshooting.md"), rootFile(t, "deploy", "prometheus", "muster.rules.test.yaml")
	checkExpr := func(name, expr string) {
		for _, metric := range regexp.MustCompile(`\b(?:muster|orchestrator)_[a-z0-9_]+`).FindAllString(expr, -1) {
			base := regexp.MustCompile(`_(bucket|count|sum)$`).ReplaceAllString(metric, "")
			if !strings.Contains(metrics, "\n* `"+metric+"`") && !strings.Contains(metrics, "`"+base+"` (histogram") {
				t.Errorf("%s: docs/reference/metrics.md has no metric %s", name, metric)
			}
		}
	}
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr         string
				Labels, Annotations map[string]string
			}
		}
	}
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	err := errors.Join(yaml.Unmarshal([]byte(rootFile(t, "deploy", "prometheus", "muster.rules.yaml")), &rules),
		json.Unmarshal([]byte(rootFile(t, "deploy", "grafana", "muster.json")), &board))
	if err != nil || len(rules.Groups) == 0 || len(board.Panels) == 0 {
		t.Fatalf("got %d groups and %d panels, %v", len(rules.Groups), len(board.Panels), err)
	}
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			checkExpr(r.Alert, r.Expr)
			if !strings.Contains(runbook, "\n## "+r.Alert+"\n") || !strings.Contains(fired, "alertname: "+r.Alert+"\n        exp_alerts:\n") ||
				r.Annotations["runbook"] != "docs/how-to/troubleshooting.md#"+strings.ToLower(r.Alert) || r.Labels["severity"] == "" {
				t.Errorf("%s has no severity, section of the runbook or test: %v, %v", r.Alert, r.Labels, r.Annotations)
			}
		}
	}
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			checkExpr(p.Title, target.Expr)
		}
	}
	checkExpr("scaledobject.yaml", rootFile(t, "deploy", "kubernetes", "keda", "scaledobject.yaml"))
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		return // .ci/run has Debian's package prometheus
	}
	for _, args := range [][]string{{"check", "rules", "muster.rules.yaml"}, {"test", "rules", "muster.rules.test.yaml"}} {
		cmd := exec.CommandContext(t.Context(), promtool, args...)
		cmd.Dir = filepath.Join("..", "..", "deploy", "prometheus")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}
