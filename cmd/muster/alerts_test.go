package main

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// metricName matches the metrics in an expression: Muster, Go and process metrics.
var metricName = regexp.MustCompile(`\b(?:muster|orchestrator|go|process)_[a-z0-9_]+`)

// unknownMetrics returns the metrics in an expression that docs/reference/metrics.md does not list. Another test compares that page with the exported metrics.
func unknownMetrics(t *testing.T, expr string) []string {
	t.Helper()
	page := rootFile(t, "docs", "reference", "metrics.md")
	var unknown []string
	for _, name := range metricName.FindAllString(expr, -1) {
		kind := "`" + name + "` | "
		for _, part := range []string{"_bucket", "_count", "_sum"} {
			if base, ok := strings.CutSuffix(name, part); ok {
				kind = "`" + base + "` | histogram"
			}
		}
		runtime := strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_")
		if !runtime && !strings.Contains(page, kind) {
			unknown = append(unknown, name)
		}
	}
	return unknown
}

// alertRule is an alert of Prometheus.
type alertRule struct {
	Alert, Expr         string
	Labels, Annotations map[string]string
}

// alertRules returns the alerts, of all groups.
func alertRules(t *testing.T) []alertRule {
	t.Helper()
	var file struct{ Groups []struct{ Rules []alertRule } }
	if err := yaml.Unmarshal([]byte(rootFile(t, "deploy", "prometheus", "muster.rules.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	var rules []alertRule
	for _, g := range file.Groups {
		rules = append(rules, g.Rules...)
	}
	return rules
}

// The commands of the runbook use the data directory of the systemd units.
func TestRunbookHasTheDataDirectoryOfTheUnits(t *testing.T) {
	t.Parallel()
	_, block, _ := strings.Cut(rootFile(t, "docs", "how-to", "runbook.md"), "```sh\n")
	block, _, _ = strings.Cut(block, "```")
	for _, unit := range []string{"muster.service", "muster-worker@.service"} {
		m := regexp.MustCompile(`(?m)^Environment=(MUSTER_DATA_DIR=\S+)$`).FindStringSubmatch(rootFile(t, "deploy", "systemd", unit))
		if m == nil || !strings.Contains(block, "export "+m[1]+"\n") {
			t.Errorf("%s sets %q; the first block of the runbook is\n%s", unit, m, block)
		}
	}
}

func TestAlertsAreOfMetricsThatThereAreAndHaveARunbook(t *testing.T) {
	t.Parallel()
	page := rootFile(t, "docs", "how-to", "runbook.md")
	rules, tests := alertRules(t), rootFile(t, "deploy", "prometheus", "muster.rules.test.yaml")
	for _, r := range rules {
		if !strings.Contains(tests, "        alertname: "+r.Alert+"\n        exp_alerts:\n") {
			t.Errorf("%s: muster.rules.test.yaml does not make it fire", r.Alert)
		}
		if bad := unknownMetrics(t, r.Expr); len(bad) > 0 || metricName.FindString(r.Expr) == "" {
			t.Errorf("%s: %s names %q, which docs/reference/metrics.md does not list", r.Alert, r.Expr, bad)
		}
		if !strings.Contains(page, "\n## "+r.Alert+"\n") || r.Annotations["runbook"] != "docs/how-to/runbook.md#"+strings.ToLower(r.Alert) {
			t.Errorf("%s: docs/how-to/runbook.md has no section for it, or it leads to %q", r.Alert, r.Annotations["runbook"])
		}
		if !slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) || r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("%s: got %v and %v, want a severity, a summary and a description", r.Alert, r.Labels, r.Annotations)
		}
	}
	if len(rules) < 20 {
		t.Errorf("saw %d alerts, want all", len(rules))
	}
	for _, m := range regexp.MustCompile(`(?m)^## (Muster\w+)$`).FindAllStringSubmatch(page, -1) {
		if !slices.ContainsFunc(rules, func(r alertRule) bool { return r.Alert == m[1] }) {
			t.Errorf("docs/how-to/runbook.md has a section for %s, which is not an alert", m[1])
		}
	}
}

func TestPrometheusTakesTheAlerts(t *testing.T) {
	t.Parallel()
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("NOT CHECKED: promtool not found; install Debian's package prometheus")
	}
	for _, args := range [][]string{{"check", "rules", "muster.rules.yaml"}, {"test", "rules", "muster.rules.test.yaml"}} {
		cmd := exec.CommandContext(t.Context(), promtool, args...)
		cmd.Dir = filepath.Join(deployDir, "prometheus")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

func TestDashboardShowsMetricsThatThereAre(t *testing.T) {
	t.Parallel()
	var board struct {
		UID    string
		Panels []struct {
			ID      int
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(rootFile(t, "deploy", "grafana", "muster.json")), &board); err != nil {
		t.Fatal(err)
	}
	ids, shown := map[int]bool{}, 0
	for _, p := range board.Panels {
		if ids[p.ID] {
			t.Errorf("%s: the id %d is there twice", p.Title, p.ID)
		}
		ids[p.ID] = true
		for _, target := range p.Targets {
			shown++
			if bad := unknownMetrics(t, target.Expr); len(bad) > 0 || metricName.FindString(target.Expr) == "" {
				t.Errorf("%s: %s names %q, which docs/reference/metrics.md does not list", p.Title, target.Expr, bad)
			}
		}
	}
	if board.UID == "" || shown < 30 {
		t.Errorf("the dashboard %q shows %d metrics, want all", board.UID, shown)
	}
}
