// Package lint checks what other modules would otherwise need large dependencies for.
package lint

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"
)

// others are the API groups of operators, whose types are not in k8s.io/api.
var others = []string{"keda.sh/", "monitoring.coreos.com/", "kustomize.config.k8s.io/"}

// Manifests have the fields of the API of Kubernetes and no others.
func TestManifestsOfKubernetes(t *testing.T) {
	files, err := filepath.Glob("../../deploy/kubernetes/*/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for manifest := range bytes.SplitSeq(text, []byte("\n---\n")) {
			var is struct{ APIVersion, Kind string }
			if err := yaml.Unmarshal(manifest, &is); err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			var object any
			switch is.APIVersion + " " + is.Kind {
			case "apps/v1 Deployment":
				object = &apps.Deployment{}
			case "apps/v1 StatefulSet":
				object = &apps.StatefulSet{}
			case "v1 Service":
				object = &core.Service{}
			case "networking.k8s.io/v1 NetworkPolicy":
				object = &networking.NetworkPolicy{}
			default:
				known := is.APIVersion == "" && filepath.Base(name) == "muster.yaml" // settings of Muster
				for _, group := range others {
					known = known || strings.HasPrefix(is.APIVersion, group)
				}
				if !known {
					t.Errorf("%s: %s %s is not checked; add its type", name, is.APIVersion, is.Kind)
				}
				continue
			}
			checked++
			if err := yaml.UnmarshalStrict(manifest, object); err != nil {
				t.Errorf("%s: %s: %v", name, is.Kind, err)
			}
		}
	}
	if checked < 8 {
		t.Errorf("checked %d manifests, want all", checked)
	}
}
