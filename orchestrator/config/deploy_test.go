package config

import (
	"os"
	"regexp"
	"testing"

	"github.com/goccy/go-yaml"
)

// What the container files set are settings that there are.
func TestContainerFilesSetWhatThereIs(t *testing.T) {
	t.Parallel()
	compose, err := os.ReadFile("../../docker-compose.yml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Services map[string]struct {
			Environment map[string]string
			Command     []string
		}
	}
	if err := yaml.Unmarshal(compose, &file); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"redis", "orchestrator", "worker", "dashboard"} {
		service, ok := file.Services[name]
		if !ok {
			t.Errorf("there is no service %s", name)
		}
		var env []string
		for name, value := range service.Environment {
			env = append(env, name+"="+value)
		}
		if _, err := Load(Sources{File: example, Environ: env}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if name != "redis" && service.Environment["MUSTER_REDIS__URL"] == "" {
			t.Errorf("%s does not know its Redis", name)
		}
	}

	dockerfile, err := os.ReadFile("../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	env := regexp.MustCompile(`MUSTER_\w+=\S+`).FindAllString(string(dockerfile), -1)
	l, err := Load(Sources{File: example, Environ: env})
	if err != nil || len(env) < 2 || l.DataDir != "/data" {
		t.Errorf("the image sets %q: %v", env, err)
	}
}
