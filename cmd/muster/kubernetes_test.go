package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"muster/orchestrator/config"
)

// manifest is an object of Kubernetes, as far as it is checked here.
type manifest struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   struct{ Name string }
	Spec       struct {
		Template struct {
			Spec podSpec
		}
		VolumeClaimTemplates []struct{ Metadata struct{ Name string } } `yaml:"volumeClaimTemplates"`
		ScaleTargetRef       struct{ Name string }                      `yaml:"scaleTargetRef"`
		Triggers             []struct {
			Type     string
			Metadata map[string]string
		}
	}
}

type podSpec struct {
	Grace           int `yaml:"terminationGracePeriodSeconds"`
	Token           any `yaml:"automountServiceAccountToken"`
	Links           any `yaml:"enableServiceLinks"`
	SecurityContext struct {
		RunAsNonRoot bool `yaml:"runAsNonRoot"`
		RunAsUser    int  `yaml:"runAsUser"`
	} `yaml:"securityContext"`
	Containers []container
	Volumes    []struct {
		Name   string
		Secret struct{ Items []struct{ Key, Path string } }
	}
}

type container struct {
	Name, Image   string
	Command, Args []string
	Env           []struct {
		Name, Value string
		ValueFrom   any `yaml:"valueFrom"`
	}
	Ports []struct {
		Name          string
		ContainerPort int `yaml:"containerPort"`
	}
	StartupProbe    httpProbe `yaml:"startupProbe"`
	LivenessProbe   httpProbe `yaml:"livenessProbe"`
	ReadinessProbe  httpProbe `yaml:"readinessProbe"`
	SecurityContext struct {
		AllowPrivilegeEscalation any  `yaml:"allowPrivilegeEscalation"`
		ReadOnlyRootFilesystem   bool `yaml:"readOnlyRootFilesystem"`
		Capabilities             struct{ Drop []string }
	} `yaml:"securityContext"`
	VolumeMounts []struct {
		Name      string
		MountPath string `yaml:"mountPath"`
	} `yaml:"volumeMounts"`
}

type httpProbe struct {
	HTTPGet struct{ Path, Port string } `yaml:"httpGet"`
}

// manifests reads all objects of Kubernetes, by kind and name.
func manifests(t *testing.T) map[string]manifest {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(deployDir, "kubernetes", "*", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]manifest{}
	for _, path := range files {
		if name := filepath.Base(path); name == "kustomization.yaml" || name == "muster.yaml" {
			continue
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for dec := yaml.NewDecoder(f); ; {
			var m manifest
			if err := dec.Decode(&m); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			key := m.Kind + " " + m.Metadata.Name
			if _, ok := out[key]; ok || m.APIVersion == "" || m.Metadata.Name == "" {
				t.Errorf("%s: %q is there twice, or has no version or name", path, key)
			}
			out[key] = m
		}
	}
	return out
}

// kubernetesSettings loads the settings of a container in the manifests.
func kubernetesSettings(t *testing.T, c container) config.Config {
	t.Helper()
	var environ []string
	for _, e := range c.Env {
		if !strings.HasPrefix(e.Name, "MUSTER_") || e.Name == "MUSTER_CONFIG" {
			continue
		}
		if strings.HasSuffix(e.Name, "_FILE") {
			if !strings.HasPrefix(e.Value, "/run/secrets/muster/") {
				t.Errorf("%s: %s is %s, which no volume has", c.Name, e.Name, e.Value)
			}
			file := filepath.Join(t.TempDir(), filepath.Base(e.Value))
			secret := map[string]string{"redis-url": "redis://:password@redis:6379/0", "api-keys": "a key of the secret", "metrics-keys": "a key of the secret"}[filepath.Base(file)]
			if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			e.Value = file
		}
		environ = append(environ, e.Name+"="+e.Value)
	}
	loaded, err := config.Load(config.Sources{File: filepath.Join(deployDir, "kubernetes", "base", "muster.yaml"), Environ: environ})
	if err != nil {
		t.Fatalf("%s: %v", c.Name, err)
	}
	if loaded.Redis.URL == "" || len(loaded.API.Keys) != 1 {
		t.Errorf("%s: got Redis %q and %d keys, want the values in the secret", c.Name, loaded.Redis.URL, len(loaded.API.Keys))
	}
	return loaded.Config
}

func TestKubernetesRunsWhatThereIs(t *testing.T) {
	t.Parallel()
	all := manifests(t)
	var api struct{ Paths map[string]any }
	if err := json.Unmarshal([]byte(rootFile(t, "docs", "reference", "openapi.json")), &api); err != nil {
		t.Fatal(err)
	}
	for object, port := range map[string]string{"StatefulSet muster": "http", "Deployment muster-worker": "metrics"} {
		pod := all[object].Spec.Template.Spec
		if len(pod.Containers) != 1 {
			t.Errorf("%s has %d containers, want 1", object, len(pod.Containers))
			continue
		}
		c := pod.Containers[0]
		cfg := kubernetesSettings(t, c)
		if err := knownCommand(c.Args); err != nil || c.Image != "muster" || len(c.Command) > 0 {
			t.Errorf("%s runs %s %q: %v", object, c.Image, c.Command, err)
		}
		if limit := time.Duration(pod.Grace) * time.Second; limit <= cfg.Shutdown.Drain {
			t.Errorf("%s is killed after %s, want more than shutdown.drain, %s", object, limit, cfg.Shutdown.Drain)
		}
		listen := map[string]string{"http": cfg.API.Listen, "metrics": cfg.Workers.Metrics}[port]
		if len(c.Ports) != 1 || c.Ports[0].Name != port || listen != fmt.Sprintf("0.0.0.0:%d", c.Ports[0].ContainerPort) {
			t.Errorf("%s has the ports %v, and listens at %s", object, c.Ports, listen)
		}
		for path, p := range map[string]httpProbe{"/health": c.LivenessProbe, "/ready": c.ReadinessProbe} {
			if p.HTTPGet.Path != path || p.HTTPGet.Port != port || api.Paths[path] == nil {
				t.Errorf("%s: a probe asks %+v, want %s at %s", object, p.HTTPGet, path, port)
			}
		}
		if c.StartupProbe.HTTPGet != c.LivenessProbe.HTTPGet {
			t.Errorf("%s: startup probe %+v, want the liveness probe", object, c.StartupProbe.HTTPGet)
		}
	}
	if len(all) < 10 {
		t.Errorf("saw %d objects of Kubernetes, want all", len(all))
	}
}

func TestKubernetesPodsHaveNoRights(t *testing.T) {
	t.Parallel()
	pods := 0
	for object, m := range manifests(t) {
		pod := m.Spec.Template.Spec
		if len(pod.Containers) == 0 {
			continue
		}
		pods++
		if !pod.SecurityContext.RunAsNonRoot || pod.SecurityContext.RunAsUser == 0 || pod.Token != false || pod.Links != false {
			t.Errorf("%s: want an ordinary user, no token and no variables of services, got %+v, %v, %v", object, pod.SecurityContext, pod.Token, pod.Links)
		}
		var volumes []string
		for _, v := range pod.Volumes {
			volumes = append(volumes, v.Name)
			if v.Name == "secrets" && (len(v.Secret.Items) == 0 || object != "StatefulSet muster" && slices.ContainsFunc(v.Secret.Items, func(i struct{ Key, Path string }) bool { return i.Key == "api-keys" })) {
				t.Errorf("%s: got the secrets %v, want the needed ones, and the keys of the API only for the orchestrator", object, v.Secret.Items)
			}
		}
		for _, v := range m.Spec.VolumeClaimTemplates {
			volumes = append(volumes, v.Metadata.Name)
		}
		for _, c := range pod.Containers {
			s := c.SecurityContext
			if s.AllowPrivilegeEscalation != false || !s.ReadOnlyRootFilesystem || !slices.Equal(s.Capabilities.Drop, []string{"ALL"}) {
				t.Errorf("%s: the container %s may do too much: %+v", object, c.Name, s)
			}
			for _, v := range c.VolumeMounts {
				if !slices.Contains(volumes, v.Name) {
					t.Errorf("%s mounts %s, which is not a volume of %q", object, v.Name, volumes)
				}
			}
		}
	}
	if pods != 3 {
		t.Errorf("saw %d pods, want orchestrator, workers and Redis", pods)
	}
}

// Each file of a folder is in its kustomization, and the other way round.
func TestKustomizationsNameAllFiles(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{"base", "redis", "keda", "monitoring"} {
		var k struct {
			Resources          []string
			ConfigMapGenerator []struct{ Files []string } `yaml:"configMapGenerator"`
		}
		if err := yaml.Unmarshal([]byte(rootFile(t, "deploy", "kubernetes", dir, "kustomization.yaml")), &k); err != nil {
			t.Fatal(err)
		}
		named := slices.DeleteFunc(k.Resources, func(s string) bool { return s == "../base" })
		for _, m := range k.ConfigMapGenerator {
			named = append(named, m.Files...)
		}
		slices.Sort(named)
		var files []string
		entries, err := os.ReadDir(filepath.Join(deployDir, "kubernetes", dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.Name() != "kustomization.yaml" {
				files = append(files, e.Name())
			}
		}
		if !slices.Equal(named, files) {
			t.Errorf("%s names %q, want %q", dir, named, files)
		}
	}
}

func TestScalingFollowsTheQueues(t *testing.T) {
	t.Parallel()
	all := manifests(t)
	s := all["ScaledObject muster-worker"].Spec
	if _, ok := all["Deployment "+s.ScaleTargetRef.Name]; !ok || len(s.Triggers) != 1 || s.Triggers[0].Type != "prometheus" {
		t.Fatalf("got the target %q and the triggers %v, want the workers and one", s.ScaleTargetRef.Name, s.Triggers)
	}
	trigger := s.Triggers[0].Metadata
	if bad := unknownMetrics(t, trigger["query"]); len(bad) > 0 || !strings.Contains(trigger["query"], "muster_fleet_tasks") {
		t.Errorf("%s: %q are unknown", trigger["query"], bad)
	}
	cfg := kubernetesSettings(t, all["Deployment muster-worker"].Spec.Template.Spec.Containers[0])
	if want := strconv.Itoa(2 * cfg.Workers.Concurrency); trigger["threshold"] != want {
		t.Errorf("a worker is there for %s tasks, want twice its slots, %s", trigger["threshold"], want)
	}
}
