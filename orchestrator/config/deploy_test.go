package config

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// service is a service of docker-compose.yml, with the fields that the tests use.
type service struct {
	Environment map[string]string
	Command     []string
	Ports       []string
	Volumes     []string
	Profiles    []string
	DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
	Healthcheck struct{ Test []string }
	User        string
	ReadOnly    bool     `yaml:"read_only"`
	CapDrop     []string `yaml:"cap_drop"`
	SecurityOpt []string `yaml:"security_opt"`
	Build       string
	Networks    []string
}

// composed parses docker-compose.yml.
func composed(t *testing.T) (services map[string]service, volumes []string) {
	t.Helper()
	var file struct {
		Services map[string]service
		Volumes  map[string]any
	}
	if err := yaml.Unmarshal([]byte(deployed(t, "docker-compose.yml")), &file); err != nil {
		t.Fatal(err)
	}
	for name := range file.Volumes {
		volumes = append(volumes, name)
	}
	return file.Services, volumes
}

// deployed reads a file in the root of the module.
func deployed(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// fillIn replaces the variables in a value of docker-compose.yml with their defaults without .env, or with a key.
func fillIn(value string) string {
	value = regexp.MustCompile(`\$\{\w+:-([^}]*)\}`).ReplaceAllString(value, "$1")
	return regexp.MustCompile(`\$\{\w+:\?[^}]*\}`).ReplaceAllString(value, "a key of .env")
}

// The container files set only existing settings.
func TestContainerFilesUseExistingSettings(t *testing.T) {
	t.Parallel()
	services, _ := composed(t)
	for _, name := range []string{"redis", "orchestrator", "worker"} {
		s, ok := services[name]
		if !ok {
			t.Errorf("no service %s", name)
		}
		var env []string
		for name, value := range s.Environment {
			env = append(env, name+"="+fillIn(value))
		}
		if _, err := Load(Sources{File: example, Environ: env}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if name != "redis" && s.Environment["MUSTER_REDIS__URL"] == "" {
			t.Errorf("%s has no Redis address", name)
		}
	}
	env := regexp.MustCompile(`MUSTER_\w+=\S+`).FindAllString(deployed(t, "Dockerfile"), -1)
	l, err := Load(Sources{File: example, Environ: env})
	if err != nil || len(env) < 2 || l.DataDir != "/data" {
		t.Errorf("the image sets %q: %v", env, err)
	}
}

// The agent URLs in .env become agents of the configuration.
func TestComposePassesAgentURLs(t *testing.T) {
	t.Parallel()
	services, _ := composed(t)
	var env []string
	for _, role := range []string{"creator", "validator"} {
		name := strings.ToUpper(role) + "_AGENT_URL"
		value := services["orchestrator"].Environment[name]
		if !strings.HasPrefix(value, "${"+name+":-") {
			t.Errorf("%s of the orchestrator: got %q, want the value of .env, or none", name, value)
		}
		env = append(env, name+"=http://"+role+":8001")
	}
	l, err := Load(Sources{File: example, Environ: env})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, a := range l.Agents.Static {
		got = append(got, strings.Join(a.AllRoles(), ",")+" "+a.URL)
	}
	slices.Sort(got)
	if want := []string{"creator http://creator:8001", "validator http://validator:8001"}; !slices.Equal(got, want) {
		t.Errorf("got the agents %q, want %q", got, want)
	}
}

// The orchestrator serves the API on port 8000 of this machine only, requires a key and stores its data in a volume.
func TestComposeServesTheAPI(t *testing.T) {
	t.Parallel()
	services, volumes := composed(t)
	o := services["orchestrator"]
	if want := []string{"127.0.0.1:8000:8000"}; !slices.Equal(o.Ports, want) {
		t.Errorf("got the ports %q, want %q", o.Ports, want)
	}
	if got := o.Environment["MUSTER_API__LISTEN"]; got != "0.0.0.0:8000" {
		t.Errorf("it listens at %q, want 0.0.0.0:8000", got)
	}
	if got := o.Environment["MUSTER_API__KEYS"]; !strings.HasPrefix(got, "${MUSTER_API_KEY:?") {
		t.Errorf("got the keys %q, want the key of .env, which is required", got)
	}
	if got := o.DependsOn["redis"].Condition; got != "service_healthy" {
		t.Errorf("it waits for redis to be %q, want service_healthy", got)
	}
	for name, want := range map[string]string{"orchestrator": "data:/data", "worker": "data:/data", "redis": "redis:/data"} {
		if !slices.Contains(services[name].Volumes, want) || !slices.Contains(volumes, strings.Split(want, ":")[0]) {
			t.Errorf("%s: got the volumes %q of %q, want %s", name, services[name].Volumes, volumes, want)
		}
	}
	if got := services["worker"].Healthcheck.Test; !slices.Equal(got, []string{"CMD", "/muster", "health"}) {
		t.Errorf("the health check of the worker is %q; it serves no HTTP, so want muster health", got)
	}
}

// The profile agents contains an example agent for each role of the default pipeline, with access to the API.
func TestComposeHasAgents(t *testing.T) {
	t.Parallel()
	services, _ := composed(t)
	o := services["orchestrator"].Environment
	for _, role := range []string{"creator", "validator"} {
		a, ok := services[role]
		if !ok {
			t.Errorf("no service %s", role)
			continue
		}
		if want := []string{"python", "/agents/" + role + ".py"}; !slices.Equal(a.Command, want) {
			t.Errorf("%s: got the command %q, want %q", role, a.Command, want)
		}
		if _, err := os.Stat("../../examples/agents/" + role + ".py"); err != nil {
			t.Error(err)
		}
		if want := []string{"./examples/agents:/agents:ro"}; !slices.Equal(a.Volumes, want) {
			t.Errorf("%s: got the volumes %q, want %q", role, a.Volumes, want)
		}
		if !slices.Equal(a.Profiles, []string{"agents"}) {
			t.Errorf("%s: got the profiles %q, want agents", role, a.Profiles)
		}
		host := strings.TrimSuffix(strings.TrimPrefix(a.Environment["MUSTER_API"], "http://"), ":8000")
		if host == "" || host != o["MUSTER_API__HOSTS"] || services[host].Command == nil {
			t.Errorf("%s calls %q; the API accepts the host %q", role, a.Environment["MUSTER_API"], o["MUSTER_API__HOSTS"])
		}
		if key := a.Environment["MUSTER_KEY"]; !strings.HasPrefix(key, "${MUSTER_AGENT_KEY:-") {
			t.Errorf("%s has the key %q, want a separate key: the key of the API has the role admin", role, key)
		}
	}
}

// Agents process untrusted documents and cannot reach Redis, whose password grants full access.
func TestComposeProtectsRedis(t *testing.T) {
	t.Parallel()
	services, _ := composed(t)
	for name, s := range services {
		wantRedis := !slices.Contains(s.Profiles, "agents")
		if slices.Contains(s.Networks, "redis") != wantRedis {
			t.Errorf("%s: got the networks %q, want redis among them: %v", name, s.Networks, wantRedis)
		}
		for name, value := range s.Environment {
			if !wantRedis && strings.Contains(name+value, "REDIS") {
				t.Errorf("an agent has %s=%s", name, value)
			}
		}
		if user := s.User != "" || s.Build != ""; !user || !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) || !slices.Equal(s.SecurityOpt, []string{"no-new-privileges:true"}) {
			t.Errorf("%s: got user %q, read_only %v, cap_drop %q, security_opt %q", name, s.User, s.ReadOnly, s.CapDrop, s.SecurityOpt)
		}
	}
	redis := services["redis"]
	if command := strings.Join(redis.Command, " "); !strings.Contains(command, "requirepass $$REDIS_PASSWORD") || len(redis.Ports) > 0 || !slices.Equal(redis.Networks, []string{"redis"}) {
		t.Errorf("Redis: got %q, ports %q, networks %q; want a password, no ports and the network redis", command, redis.Ports, redis.Networks)
	}
	for _, name := range []string{"orchestrator", "worker"} {
		if url := services[name].Environment["MUSTER_REDIS__URL"]; !strings.Contains(url, "${MUSTER_REDIS_PASSWORD:?") {
			t.Errorf("%s: got the Redis %q, want the password of .env", name, url)
		}
	}
}

// The image is built in two stages, runs as an unprivileged user, and has a health check on port 8000.
func TestImage(t *testing.T) {
	t.Parallel()
	text := deployed(t, "Dockerfile")
	for _, want := range []string{
		`(?m)^FROM golang:\S+ AS build$`, `(?m)^FROM scratch$`, `(?m)^COPY --from=build `, `(?m)^USER [1-9]\d*:[1-9]\d*$`, `(?m)^EXPOSE 8000$`,
		`(?m)^HEALTHCHECK .*"/muster", "health", "--url", "http://localhost:8000/health"\]$`, `(?m)^VOLUME /data$`,
	} {
		if !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("Dockerfile has no line %s", want)
		}
	}
}

// The build context includes all packages of muster.
func TestImageIsBuiltFromAllPackages(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if not .Standard}}{{.Dir}}{{end}}", "./cmd/muster")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	ignore := "\n" + deployed(t, ".dockerignore")
	found := 0
	for dir := range strings.Lines(string(out)) {
		name, err := filepath.Rel(root, strings.TrimSpace(dir))
		if err != nil || strings.HasPrefix(name, "..") {
			continue // another module
		}
		found++
		top, _, _ := strings.Cut(filepath.ToSlash(name), "/")
		if !strings.Contains(ignore, "\n!"+top+"\n") {
			t.Errorf("muster imports %s, but .dockerignore excludes %s", name, top)
		}
	}
	if found < 20 {
		t.Errorf("got %d packages, want at least 20", found)
	}
}
